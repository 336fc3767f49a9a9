"""The way into every command, before anything that can fail is imported: 1 must mean a difference and nothing else."""

import importlib
import sys
import traceback

from ddp_repro.streams import close_streams, open_streams

COMMANDS = ("check", "record", "compare", "resume", "bisect", "survey", "spread", "cost", "report", "summary")
MODULES = {"report": "retell"}
"""Commands whose module is called otherwise: ``ddp_repro.report`` is what all of them tell by."""
NOT_JUDGED = 2
USAGE = f"usage: ddp-repro {{{'|'.join(COMMANDS)}}} key=value …   (ddp-repro check --help lists the keys)"


def enter(command: str) -> None:
    """Run ``command`` on ``sys.argv`` and exit; a crash while its parts are imported ends with 2 too."""
    open_streams()
    try:
        importlib.import_module(f"ddp_repro.{MODULES.get(command, command)}").main()
    except SystemExit:
        raise
    except BaseException:  # noqa: BLE001  Python itself would exit with 1
        traceback.print_exc()
        sys.stdout.write("NOT_JUDGED\n")
        sys.exit(NOT_JUDGED)
    finally:
        close_streams()


def main() -> None:
    """Entry point of the console script: ``ddp-repro <command> key=value …``."""
    open_streams()
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in ("-h", "--help"):
        sys.stdout.write(f"{USAGE}\n")
        return
    if name not in COMMANDS:
        sys.stderr.write(f"{USAGE}\n")
        sys.exit(NOT_JUDGED)
    del sys.argv[1]
    enter(name)
