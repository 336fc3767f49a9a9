#!/usr/bin/env bash
# Submits a night's checks: one job for each word before the dashes, all with the overrides after them, and one job
# that writes the summary once all of them ended. A word is one or more overrides, separated by blanks:
#   slurm/nightly.sh workload=digits 'workload=text workload.size=base' -- nproc=4
#   NIGHTLY_SBATCH='--partition=gpu --gpus-per-node=4' slurm/nightly.sh workload=text -- nproc=4
# The runs are written to runs/nightly-<time>, or below the folder that output.root names. See docs/slurm.md.
set -euo pipefail
scripts=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=slurm/job.sh
source "$scripts/job.sh"

words=()
while (($# > 0)) && [[ $1 != -- ]]; do
    words+=("$1")
    shift
done
((${#words[@]} > 0)) || give_up "No workload was named." \
    "Name one or more, then the overrides of all: slurm/nightly.sh workload=digits workload=text -- nproc=4"
(($# == 0)) || shift
command -v sbatch >/dev/null || give_up "sbatch is not here: this script submits jobs to Slurm."
ensure_environment base # once and here, not by every job at the same time

# A folder that is new: a verdict that lies in it is this night's.
folder=$(last_value output.root runs "$@")/nightly-$(date +%Y-%m-%dT%H%M%S)
mkdir -p -- "$(dirname -- "$folder")"
mkdir -- "$folder" || give_up "The night's folder cannot be made (see above); call it again, or name another output.root."

read -ra options <<<"${NIGHTLY_SBATCH:-}"
array=$(sbatch --parsable --array="0-$((${#words[@]} - 1))" "${options[@]}" "$scripts/nightly.sbatch" \
    "$folder" "${#words[@]}" "${words[@]}" "$@") || give_up "sbatch did not take the checks (see above)."
array=${array%%;*}
summary=$(sbatch --parsable --dependency="afterany:$array" "$scripts/summary.sbatch" "$folder" "${words[@]}") ||
    give_up "sbatch took the checks as job $array, and not their summary (see above)." \
        "Once they ended: python -m ddp_repro.summary $folder/{0..$((${#words[@]} - 1))}"
printf 'job %s: %s checks; job %s: their summary, in %s\n' "$array" "${#words[@]}" "${summary%%;*}" "$folder"
