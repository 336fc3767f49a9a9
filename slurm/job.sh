# shellcheck shell=bash
# Sourced by the batch scripts beside it: what every job does. All numbers are in their #SBATCH lines, which sbatch's
# own options override; all settings of the check are Hydra overrides.

# shellcheck source=launch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../launch/environment.sh"

# Prints where the runs of a night lie. $1: the array's job; then the overrides of all
night_folder() {
    printf '%s/nightly-%s\n' "$(last_value output.root runs "${@:2}")" "$1"
}

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
    local folder code=0 verdicts=(REPRODUCIBLE DIVERGED NOT_JUDGED)
    folder=$(last_value output.dir "$(last_value output.root runs "$@")/slurm-$SLURM_JOB_ID" "$@")
    ensure_environment base # made once, here, before every node looks for it
    mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
    export NNODES=$SLURM_NNODES HEAD=${hosts[0]}
    export PORT=$((20000 + SLURM_JOB_ID % 10000)) # jobs that share a host do not share it
    export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1}
    # Slurm's signals reach the check as well: it ends itself and keeps what was recorded; this script waits for it.
    trap : TERM INT USR1 USR2
    srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 --kill-on-bad-exit=1 \
        "$root/launch/check_nodes.sh" "$@" "output.dir=\"$folder\"" || code=$?
    verdict=$(verdict_code "$folder" "$code")
    printf '%s\n' "${verdicts[verdict]}" # the last line, after what srun says of a task that did not end with 0
    exit "$verdict"
}

# Prints the code of a verdict, where the run itself ended with the same one; else 2, for a verdict that is missing, or
# another run's. A step that could not be started may leave srun with 0. $1: the run's folder, $2: its exit code
verdict_code() {
    "$venv/bin/python" - "$@" <<'PYTHON' || printf '2\n'
import json, pathlib, sys

folder, ended_with = pathlib.Path(sys.argv[1]), int(sys.argv[2])
found = [path for path in (folder / "verdict.json", folder / "summary.json") if path.is_file()]
code = json.loads(found[0].read_text(encoding="utf-8"))["exit_code"] if found else 2
print(code if code == ended_with else 2)
PYTHON
}
