#!/usr/bin/env bash
# One check over several hosts: run this on each of them, with the same arguments and folder, at about the same time.
#   NNODES=2 NODE_RANK=0 HEAD=host0 launch/check_nodes.sh nproc=8      on host0
#   NNODES=2 NODE_RANK=1 HEAD=host0 launch/check_nodes.sh nproc=8      on the other
# HEAD is the name or address by which the others reach the host of NODE_RANK=0; PORT (29500) is free on it. Under srun
# NNODES and NODE_RANK are known. The run's folder must be shared by all hosts: it is written where this is called.
# Exits with 0 REPRODUCIBLE, 1 DIVERGED, 2 NOT_JUDGED.
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"

nodes=${NNODES:-${SLURM_STEP_NUM_NODES:-}} node=${NODE_RANK:-${SLURM_NODEID:-}}
if [[ ! $nodes =~ ^[1-9][0-9]*$ || ! $node =~ ^[0-9]+$ ]] || ((node >= nodes)); then
    give_up "NNODES=$nodes and NODE_RANK=$node do not say which host this is, of how many." \
        "On the first of two hosts: NNODES=2 NODE_RANK=0 HEAD=\$(hostname) $0 nproc=8"
fi
if ((nodes > 1)); then
    [[ -n ${HEAD:-} ]] || give_up "HEAD must name the host of NODE_RANK=0: all others connect to it." \
        "NNODES=$nodes NODE_RANK=$node HEAD=host0 $0 nproc=8"
    # What torchrun would tell the driver of this host. Without it there is no agent between, and exit codes stay.
    export RANK=$node WORLD_SIZE=$nodes GROUP_RANK=$node GROUP_WORLD_SIZE=$nodes ROLE_RANK=$node ROLE_WORLD_SIZE=$nodes
    export LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=$HEAD MASTER_PORT=${PORT:-29500}
fi
check=$(dirname -- "${BASH_SOURCE[0]}")/check.sh
if [[ -z ${DDP_REPRO_ENDED:-} ]]; then
    exec "$check" "$@"
fi

# A batch script of slurm/ takes the verdict's code from this file. To srun, 1 would be a reason to end the other nodes,
# which are about to end by themselves, and it would show one of their codes. Signals of Slurm reach the check as well:
# this shell only waits for it.
code=0
trap : TERM INT USR1 USR2
"$check" "$@" || code=$?
((node > 0)) || printf '%s\n' "$code" >"$DDP_REPRO_ENDED"
((code == 1)) || exit "$code"
