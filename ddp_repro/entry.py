"""The way into every command, before anything that can fail is imported: 1 must mean a difference and nothing else."""

import importlib
import sys
import traceback

COMMANDS = ("check", "record", "compare", "resume")
NOT_JUDGED = 2
USAGE = f"usage: ddp-repro {{{'|'.join(COMMANDS)}}} key=value …   (ddp-repro check --help lists the keys)"


def enter(command: str) -> None:
    """Run ``command`` on ``sys.argv`` and exit; a crash while its parts are imported ends with 2 too."""
    try:
        importlib.import_module(f"ddp_repro.{command}").main()
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001  Python itself would exit with 1
        traceback.print_exc()
        sys.stdout.write("NOT_JUDGED\n")
        sys.exit(NOT_JUDGED)


def main() -> None:
    """Entry point of the console script: ``ddp-repro <command> key=value …``."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in ("-h", "--help"):
        sys.stdout.write(f"{USAGE}\n")
        return
    if name not in COMMANDS:
        sys.stderr.write(f"{USAGE}\n")
        sys.exit(NOT_JUDGED)
    del sys.argv[1]
    enter(name)
