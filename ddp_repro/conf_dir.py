"""Where the configuration files are: inside an installed package, or beside it in a checkout."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_INSTALLED = _PACKAGE / "conf"

CONF_DIR: Path = _INSTALLED if _INSTALLED.is_dir() else _PACKAGE.parent / "conf"
"""Absolute folder of the Hydra configuration (``ddp_repro/conf`` in a wheel, ``conf`` in a checkout)."""
