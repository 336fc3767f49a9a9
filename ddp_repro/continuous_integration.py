"""Whether this runs where nobody watches: there no golden is made or written over."""

from collections.abc import Mapping
from typing import Final

_NO: Final = ("", "0", "false", "no", "off")


def in_ci(environ: Mapping[str, str]) -> bool:
    """Return whether ``CI`` says so, as every service for continuous integration sets it."""
    return environ.get("CI", "").strip().lower() not in _NO
