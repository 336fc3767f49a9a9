# shellcheck shell=bash
# Sourced by the batch scripts beside it: what every job does. All numbers are in their #SBATCH lines, which sbatch's
# own options override; all settings of the check are Hydra overrides.

# shellcheck source=launch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../launch/environment.sh"

# Prints the value that the last of the overrides gives a key, without Hydra's quotes. $1: key, $2: otherwise
last_value() {
    local key=$1 value=$2 override
    for override in "${@:3}"; do
        [[ $override != "$key="* ]] || value=${override#*=}
    done
    value=${value#[\"\']}
    printf '%s\n' "${value%[\"\']}"
}

# Runs one check over all nodes of the allocation and exits with its verdict's code. Arguments: overrides of check
check_on_all_nodes() {
    local folder verdicts=(REPRODUCIBLE DIVERGED NOT_JUDGED)
    folder=$(last_value output.dir "$(last_value output.root runs "$@")/slurm-$SLURM_JOB_ID" "$@")
    ensure_environment base # made once, here, before every node looks for it
    mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    export NNODES=$SLURM_NNODES HEAD=${hosts[0]}
    export PORT=$((20000 + SLURM_JOB_ID % 10000)) # jobs on one host have others
    export DDP_REPRO_ENDED=$PWD/.ddp-repro-ended-$SLURM_JOB_ID
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
    trap : TERM INT USR1 USR2 # the check ends itself and keeps what was recorded; this script waits for it
    srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
        "$root/launch/check_nodes.sh" "$@" "output.dir=\"$folder\"" || true # what counts is how its first node ended
    verdict=$(verdict_code "$folder" "$(cat -- "$DDP_REPRO_ENDED" 2>/dev/null || printf '2\n')")
    rm -f -- "$DDP_REPRO_ENDED"
    printf '%s\n' "${verdicts[verdict]}" # the last line, after what srun says
    exit "$verdict"
}

# Prints the code of a verdict, where the run ended with the same one; else 2: for a verdict that is missing, or that
# another run wrote there before. $1: the run's folder, $2: its exit code
verdict_code() {
    "$venv/bin/python" - "$@" <<'PYTHON' || printf '2\n'
import json, pathlib, sys

folder, ended_with = pathlib.Path(sys.argv[1]), int(sys.argv[2])
found = [path for path in (folder / "verdict.json", folder / "summary.json") if path.is_file()]
code = json.loads(found[0].read_text(encoding="utf-8"))["exit_code"] if found else 2
print(code if code == ended_with else 2)
PYTHON
}
