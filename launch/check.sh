#!/usr/bin/env bash
# Is the training reproducible in bits? Sets up the environment on first use, then runs the check through torchrun:
#   launch/check.sh nproc=4 workload=text
# Exits with 0 REPRODUCIBLE, 1 DIVERGED, 2 NOT_JUDGED (torchrun alone would make 1 of both 1 and 2).
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment base

scratch=$(mktemp -d)
run=
trap 'rm -rf -- "$scratch"' EXIT
for signal in INT TERM HUP; do
    # shellcheck disable=SC2064  # the name of the signal is meant as it is now
    trap "pass_on $signal" "$signal"
done

# The run ends its worlds itself when it is told to; this script waits for that.
# shellcheck disable=SC2329  # the traps call it
pass_on() {
    [[ -z $run ]] || kill -s "$1" "$run" 2>/dev/null || true
}

# Passed through a pipe, the report is still meant for the terminal behind it.
if [[ -t 1 && -t 2 && -z ${NO_COLOR:-} ]]; then
    export FORCE_COLOR=1
fi

# With job control, tee is not reached by Ctrl-C (it must outlive the run), and the run does not ignore it.
set -m
mkfifo -- "$scratch/pipe"
tee -- "$scratch/stdout" <"$scratch/pipe" &
tee=$!
"$venv/bin/python" -m torch.distributed.run --standalone --nproc-per-node 1 \
    -m ddp_repro.check "$@" >"$scratch/pipe" </dev/null &
run=$!

code=0
while kill -0 "$run" 2>/dev/null; do # wait returns early when a signal came
    code=0
    wait "$run" || code=$?
done
for _ in {1..50}; do # the pipe closes with the run; should anything else hold it open, that is not waited for
    kill -0 "$tee" 2>/dev/null || break
    sleep 0.1
done
kill "$tee" 2>/dev/null || true

word=$(tail -n 1 -- "$scratch/stdout" | sed $'s/\e\\[[0-9;]*m//g')
case $word in
REPRODUCIBLE) exit 0 ;;
DIVERGED) exit 1 ;;
NOT_JUDGED) exit 2 ;;
*) exit $((code == 0 ? 0 : 2)) ;; # --cfg and --help give no verdict
esac
