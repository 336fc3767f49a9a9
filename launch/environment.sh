# shellcheck shell=bash
# Sourced by the scripts beside it: makes the virtual environment on first use and keeps it as constraints.txt and
# pyproject.toml say.
#   PYTHON=python3.12            the interpreter to make it with (default: python3)
#   DDP_REPRO_VENV=/path/to/it   where it lies (default: .venv in the checkout)
# What is installed is base (the project alone), dev (and what its tests need) or integrations (and other trainers):
# each has all that the one before it has.

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=${DDP_REPRO_VENV:-$root/.venv}
owner=.made-by-ddp-repro # marks a folder that these scripts made and may therefore clear
stamp=$venv/.installed   # what is installed; only there when an installation ran to its end

give_up() {
    printf '%s\n' "$@" >&2
    exit 2
}

# The interpreter to start from, checked; says what to install where something is missing.
checked_python() {
    local python=${PYTHON:-python3}
    command -v -- "$python" >/dev/null || give_up "$python is not here: Python 3.11 or newer is needed." \
        "On Debian or Ubuntu: apt install python3 python3-venv; or name another one: PYTHON=/path/to/python3.12 $0"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || give_up \
        "$python is $("$python" --version 2>&1), and Python 3.11 or newer is needed." \
        "Install one and name it: PYTHON=python3.12 $0"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || give_up "$python cannot make virtual environments." \
        "On Debian or Ubuntu: apt install python3-venv"
    printf '%s\n' "$python"
}

# One line that changes with whatever the environment depends on. $1: interpreter
fingerprint() {
    "$1" -c '
import hashlib, pathlib, sys
files = [pathlib.Path(name).read_bytes() for name in sys.argv[3:]]
print("%d.%d" % sys.version_info[:2], sys.argv[1], sys.argv[2], hashlib.sha256(b"\0".join(files)).hexdigest())
' "$root" "$venv" "$root/constraints.txt" "$root/pyproject.toml"
}

# Takes the folder for one process at a time; refuses one that is somebody else's.
claim_venv() {
    if [[ -e $venv && ! -e $venv/$owner ]] && [[ -n $(ls -A -- "$venv" 2>&1) ]]; then
        give_up "$venv is there and was not made by these scripts, so they leave it alone." \
            "Use it yourself (pip install -e .), or have another one made: DDP_REPRO_VENV=/path/to/venv $0"
    fi
    mkdir -p -- "$venv" || give_up "Cannot make the folder $venv; name another: DDP_REPRO_VENV=/path/to/venv $0"
    exec 9>>"$venv/$owner"
    if command -v flock >/dev/null; then
        flock 9
    fi
}

# Makes the environment; whatever an interrupted attempt left is cleared first. $1: interpreter
make_venv() {
    find "$venv" -mindepth 1 -maxdepth 1 ! -name "$owner" -exec rm -rf -- {} +
    "$1" -m venv "$venv" >&2 || give_up "Making the virtual environment $venv failed (see above)." \
        "On Debian or Ubuntu: apt install python3-venv"
}

# Prints what is installed, as "<fingerprint> <extra>", or nothing where it has to be made anew. $1: fingerprint
usable_stamp() {
    local installed=
    [[ -r $stamp && -x $venv/bin/python ]] && installed=$(<"$stamp")
    # All but the digest of the requirements must fit: interpreter, checkout and place are built into it.
    if [[ -n $installed && ${installed% * *} == "${1% *}" ]]; then
        printf '%s\n' "$installed"
    fi
}

# Prints the extra that has all of both. $1, $2: extras
larger_extra() {
    local extra
    for extra in integrations dev; do
        if [[ $1 == "$extra" || $2 == "$extra" ]]; then
            printf '%s\n' "$extra"
            return
        fi
    done
    printf 'base\n'
}

# Whether that is enough. $1: stamp, $2: fingerprint, $3: extra
is_enough() {
    [[ $1 == "$2 $(larger_extra "$3" "${1##* }")" ]]
}

# $1: the extra. Afterwards $venv/bin/python runs the project, installed with that extra or with more.
ensure_environment() {
    local extra=$1 python wanted installed
    python=$(checked_python)
    wanted=$(fingerprint "$python")
    installed=$(usable_stamp "$wanted")
    if is_enough "$installed" "$wanted" "$extra"; then
        return
    fi
    claim_venv
    installed=$(usable_stamp "$wanted") # another one may have made it while this one waited
    if ! is_enough "$installed" "$wanted" "$extra"; then
        printf 'Setting up %s (PyTorch and the rest are fetched once; this can take minutes) ...\n' "$venv" >&2
        rm -f -- "$stamp"
        if [[ -z $installed ]]; then
            make_venv "$python"
        else
            extra=$(larger_extra "$extra" "${installed##* }")
        fi
        install_project "$extra"
        printf '%s %s\n' "$wanted" "$extra" >"$stamp"
    fi
    exec 9>&-
}

# $1: the extra
install_project() {
    local project=$root
    case $1 in
        dev) project+="[dev]" ;;
        integrations) project+="[dev,integrations]" ;;
    esac
    "$venv/bin/python" -m pip install --disable-pip-version-check --quiet -c "$root/constraints.txt" -e "$project" >&2 ||
        give_up "Installing into $venv failed (see above); the next call starts afresh."
}
