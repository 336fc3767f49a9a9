#!/usr/bin/env bash
# Is the training reproducible in bits? Sets up the environment on first use, then becomes the check:
#   launch/check.sh nproc=4 workload=text
# Exits with 0 REPRODUCIBLE, 1 DIVERGED, 2 NOT_JUDGED. Not through torchrun, which would make 1 of both 1 and 2.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment base

# Python itself would end with 1, which means DIVERGED and nothing else.
"$venv/bin/python" -c 'import ddp_repro.entry' || give_up "ddp_repro cannot be imported from $venv (see above)." \
    "Remove that folder; the next call makes it anew."

# In this script's place: whoever signals or kills the script, or waits for it, does so to the run.
exec "$venv/bin/python" -m ddp_repro.check "$@" </dev/null
