"""What a script's Hydra resolved on this rank: read from the call that runs the script's main, and not resolved anew.

Resolving may draw random numbers or read the clock, so a value whose resolver has not been asked yet is left as it is
written. A setting that the script itself wrote over is none of the configuration's any more.
"""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, Final

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_PURE: Final = frozenset(
    {"oc.env", "oc.select", "oc.decode", "oc.deprecated", "oc.dict.keys", "oc.dict.values", "hydra", "python_version"}
)
_OF_A_PLACE: Final = re.compile(r"\$\{(now|hydra):")
_OF_A_RANK: Final = re.compile(
    r"\$\{oc\.env:\s*['\"]?\w*(RANK|PROCID|LOCALID|NODEID|HOSTNAME|NODENAME|VISIBLE_DEVICES)"
)
_CALL: Final = re.compile(r"\$\{([A-Za-z_][\w.]*):([^{}$]*)\}")
_ASKED: Final = re.compile(r"\$\{([A-Za-z_][\w.]*):")
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_][\w.\[\]]*)\}")
_DEEPEST: Final = 8

Plain = bool | int | float | str | None


def resolved_settings() -> dict[str, dict[str, Plain]]:
    """Return the settings by dotted name.

    Apart from them stand those that follow from clock or output folder, and by name those that the script wrote over.
    Empty where no script runs under ``hydra.main``. What is asked of a variable that tells rank or node is left out;
    for what is asked of another one, which may hold a secret, its digest stands.
    """
    job = _job()
    if job is None:
        return {}
    composed, given = job.f_locals.get("config"), job.f_locals.get("task_cfg")
    if not isinstance(composed, DictConfig) or not isinstance(given, DictConfig):
        return {}
    told: dict[str, dict[str, Plain]] = {
        "config": {},
        "places": {"output_dir": job.f_locals.get("output_dir")},
        "written_over": {},
    }
    before, now = dict(_leaves(_unresolved(composed))), dict(_leaves(_unresolved(given)))
    for name, value in now.items():
        if name not in before or before[name] != value:
            told["written_over"][name] = True
            continue
        text = _expanded(value, now) if isinstance(value, str) else ""
        if not _OF_A_RANK.search(text):
            told["places" if _OF_A_PLACE.search(text) else "config"][name] = _value(given, name, value, text)
    return told


def _job() -> FrameType | None:
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 -- the documented way to the callers' frames
    while frame is not None:
        if frame.f_code.co_name == "run_job" and frame.f_globals.get("__name__") == "hydra.core.utils":
            return frame
        frame = frame.f_back
    return None


def _unresolved(config: DictConfig) -> Any:
    return OmegaConf.to_container(config, resolve=False, enum_to_str=True)


def _leaves(node: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if name or key != "hydra":
                yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _leaves(value, f"{name}[{index}]")
    else:
        yield name, node


def _expanded(text: str, settings: Mapping[str, Any], depth: int = 0) -> str:
    """Return a value with what it refers to put in, so that every resolver that it needs shows."""

    def put_in(match: re.Match[str]) -> str:
        found = settings.get(match[1])
        return _expanded(found, settings, depth + 1) if isinstance(found, str) else match[0]

    return text if depth == _DEEPEST else _REFERENCE.sub(put_in, text)


def _value(config: DictConfig, name: str, written: Any, text: str) -> Plain:
    if "${" not in text:
        return written if isinstance(written, Plain) else str(written)
    if not _is_known(config, text):
        return text
    try:
        value = OmegaConf.select(config, name)
    except OmegaConfBaseException:
        return text
    if "${oc.env:" in text:
        return hashlib.sha256(str(value).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return value if isinstance(value, Plain) else str(value)


def _is_known(config: DictConfig, text: str) -> bool:
    """Tell whether nothing is asked that was not asked before, or that answers without an effect."""
    cache = OmegaConf.get_cache(config)
    for name, arguments in _CALL.findall(text):
        key = tuple(part.strip() for part in arguments.split(",")) if arguments.strip() else ()
        if name not in _PURE and key not in cache.get(name, {}):
            return False
    return all(name in _PURE for name in _ASKED.findall(_CALL.sub("", text)))
