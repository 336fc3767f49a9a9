"""Finds the factory that ``workload._target_`` names and calls it."""

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from ddp_repro.errors import ReproError
from ddp_repro.workload.definition import Workload


def load_workload(target: str, options: Mapping[str, Any]) -> Workload:
    """Return what the factory `target` (``package.module.function``) makes of `options`.

    Modules of the current folder can be named. Raises `ReproError` if the name cannot be imported, is no function,
    does not take these options, or returns something else than a `Workload`; errors inside the factory pass through.
    """
    factory = _find(target)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise ReproError(
            f"workload._target_={target} does not take the options {', '.join(options) or '(none)'}: {error}",
            hint=f"give the options that it takes: {target}{inspect.signature(factory)}",
        ) from error
    workload = factory(**options)
    if not isinstance(workload, Workload):
        raise ReproError(
            f"workload._target_={target} returned {type(workload).__name__}",
            hint="return a ddp_repro.Workload; docs/your-own-training.md shows one",
        )
    _check(workload, target)
    return workload


def _check(workload: Workload, target: str) -> None:
    """Raise `ReproError` for a field of another type, which would fail much later in words of torch."""
    size, clip = workload.batch_size, workload.clip_norm
    functions = {"loss": True, "optimizer": True, "metric": False, "scheduler": False, "train_loader": False}
    wrong = [
        (name, f"a function{'' if is_needed else ' or None'}")
        for name, is_needed in functions.items()
        if not callable(getattr(workload, name)) and (is_needed or getattr(workload, name) is not None)
    ]
    if not isinstance(workload.model, nn.Module):
        wrong.append(("model", "a torch.nn.Module"))
    if not isinstance(size, int) or isinstance(size, bool) or size < 1:
        wrong.append(("batch_size", "an integer above 0"))
    if clip is not None and not isinstance(clip, (int, float)):
        wrong.append(("clip_norm", "a number or None"))
    for name, wanted in wrong[:1]:
        value = getattr(workload, name)
        told = repr(value) if isinstance(value, (int, float, str)) else type(value).__name__
        raise ReproError(
            f"workload._target_={target} returned a Workload with {name}={told}", hint=f"give {name} {wanted}"
        )


def _find(target: str) -> Callable[..., Any]:
    module_name, _, name = target.rpartition(".")
    if not module_name or not all(part.isidentifier() for part in target.split(".")):
        raise ReproError(
            f"workload._target_={target} is not of the form package.module.function",
            hint="name a module that can be imported from this folder, a dot, and a function in it",
        )
    module = _import(module_name, target)
    factory = getattr(module, name, None)
    if factory is None:
        functions = [n for n, value in vars(module).items() if inspect.isfunction(value) and not n.startswith("_")]
        raise ReproError(
            f"workload._target_={target}: {module_name} has no {name}",
            hint=f"its functions are {', '.join(functions) or '(none)'}",
        )
    if not callable(factory):
        raise ReproError(f"workload._target_={target} is not a function", hint="name a function that builds a Workload")
    return factory  # type: ignore[no-any-return]  # found by name; what it returns is checked


def _import(module_name: str, target: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise ReproError(
                f"workload._target_={target}: {module_name} imports {missing}, which is not installed",
                hint=f"install {missing} in the environment of {sys.executable}",
            ) from error
        raise ReproError(
            f"workload._target_={target}: there is no module {missing}",
            hint=f"start from the folder that holds it ({here} was searched), or install it",
        ) from error
