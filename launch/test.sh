#!/usr/bin/env bash
# Runs the tests; sets up the environment with the test dependencies on first use. Arguments go to pytest:
#   launch/test.sh                     everything
#   launch/test.sh tests/unit -k trace
#   launch/test.sh -n 0 --pdb          in one process (two share the work: most tests wait for worlds, not for a core)
#   INTEGRATIONS=1 launch/test.sh      with the trainers installed that tests/integrations runs (34 MB to fetch, 230 on disk)
set -euo pipefail
# shellcheck source=launch/environment.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/environment.sh"
ensure_environment "$([[ ${INTEGRATIONS:-} == 1 ]] && echo integrations || echo dev)"

cd -- "$root"
exec "$venv/bin/python" -m pytest -n 2 --dist loadfile "$@"
