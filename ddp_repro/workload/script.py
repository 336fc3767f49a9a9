"""A user's training script: what is asked for, and how it is run as ``__main__``."""

import builtins
import importlib.util
import io
import runpy
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from ddp_repro.errors import ReproError

KEYS: Final = ("path", "module", "args", "data_id")
_EXAMPLE: Final = "workload=script workload.path=train.py 'workload.args=\"--lr 1e-3\"'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script by its ``path`` as it was typed, or by its ``module`` as ``python -m`` takes it, with its arguments."""

    path: str | None
    module: str | None
    arguments: tuple[str, ...]
    data_id: str | None

    @property
    def title(self) -> str:
        """Return how it is called in a sentence."""
        return self.path or f"-m {self.module}"

    def identity(self) -> dict[str, Any]:
        """Return what identifies it: not the folder it lies in, and not its content, which is provenance."""
        return {
            "path": Path(self.path).name if self.path else None,
            "module": self.module,
            "args": shlex.join(self.arguments),
        }

    def source(self) -> Path | None:
        """Return the file that is run, where there is one."""
        if self.path is not None:
            return Path(self.path).absolute()
        assert self.module is not None
        try:
            spec = importlib.util.find_spec(self.module)
            if spec is not None and spec.submodule_search_locations is not None:
                spec = importlib.util.find_spec(f"{self.module}.__main__")
        except ImportError:
            return None
        return Path(spec.origin) if spec is not None and spec.origin is not None else None


def read_script(options: Mapping[str, Any]) -> Script:
    """Return the script that the configuration names; raise ``ReproError`` for what is missing or cannot be.

    Whether its file is there is not looked at: a script that runs may have gone to another folder since.
    """
    unknown = [key for key in options if key not in KEYS]
    if unknown:
        raise ReproError(
            f"workload.{unknown[0]} is no key of a script.", hint=f"Its keys are {', '.join(KEYS)}: {_EXAMPLE}"
        )
    path, module = _text(options, "path"), _text(options, "module")
    if (path is None) == (module is None):
        told = "both workload.path and workload.module are given" if path else "no script is named"
        raise ReproError(f"{told}.", hint=f"Name one: {_EXAMPLE}, or workload.module=package.train")
    return Script(path=path, module=module, arguments=_arguments(options), data_id=_text(options, "data_id"))


def check_file(script: Script) -> None:
    """Raise ``ReproError`` where the script's file is not there, seen from this folder."""
    if script.path is not None and not Path(script.path).is_file():
        raise ReproError(f"workload.path={script.path}: there is no such file.", hint=f"Looked in {Path.cwd()}.")


def _text(options: Mapping[str, Any], key: str) -> str | None:
    value = options.get(key)
    if value is not None and not isinstance(value, str):
        raise ReproError(
            f"workload.{key}={value} was read as {type(value).__name__}, not as text.",
            hint=f"Quote it twice, for the shell and for Hydra: 'workload.{key}=\"{value}\"'",
        )
    return value or None


def _arguments(options: Mapping[str, Any]) -> tuple[str, ...]:
    value = _text(options, "args")
    try:
        return tuple(shlex.split(value or ""))
    except ValueError as error:
        raise ReproError(
            f"workload.args={value} cannot be split as a shell splits it: {error}.", hint="Close its quotes."
        ) from error


def run_as_main(script: Script) -> None:
    """Run the script as ``__main__`` with its own ``sys.argv`` and ``sys.path``; what it raises passes through.

    Raises ``ReproError`` for a file or module that is not there.
    """
    check_file(script)
    if script.path is not None:
        _run_path(script.path, script.arguments)
    elif script.source() is None:
        raise ReproError(
            f"workload.module={script.module}: there is no such module, or it cannot be run.",
            hint=f"Start from the folder that holds it ({Path.cwd()} was searched), or install it.",
        )
    else:
        assert script.module is not None
        sys.argv = [script.module, *script.arguments]
        runpy.run_module(script.module, run_name="__main__", alter_sys=True)


def _run_path(path: str, arguments: tuple[str, ...]) -> None:
    """Run a file as the interpreter does; unlike ``runpy.run_path``, its module stays ``__main__`` after its end."""
    file = str(Path(path).absolute())
    if not sys.flags.safe_path:
        sys.path[0] = str(Path(file).resolve().parent)
    sys.argv = [path, *arguments]
    with io.open_code(file) as source:
        code = compile(source.read(), file, "exec", dont_inherit=True)
    main = ModuleType("__main__")
    vars(main).update(
        __file__=file, __builtins__=builtins, __loader__=SourceFileLoader("__main__", file), __spec__=None
    )
    sys.modules["__main__"] = main
    exec(code, vars(main))  # noqa: S102  running the user's script is what it is for
