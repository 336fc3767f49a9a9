"""Opens a page in the user's browser, where there is a display to show it on."""

import os
import sys
import webbrowser
from pathlib import Path

from ddp_repro.errors import ReproError
from ddp_repro.report.terminal import print_error

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")


def open_page(path: Path) -> None:
    """Open ``path``; where that cannot be done, say so on stderr, and where the file is."""
    has_display = sys.platform == "darwin" or any(os.environ.get(name) for name in _DISPLAYS)
    if not (has_display and _opened(path.resolve())):
        why = "no browser could be started" if has_display else "there is no display here"
        print_error(ReproError(f"{path} was not opened: {why}.", hint="Open it yourself, here or on another machine."))


def _opened(path: Path) -> bool:
    try:
        return webbrowser.open(path.as_uri())
    except (webbrowser.Error, OSError):
        return False
