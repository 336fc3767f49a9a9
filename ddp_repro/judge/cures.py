"""What can help where an operator is not deterministic, and no more than is known to: by what was in force already."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ddp_repro.judge.operators import OperatorDivergence
from ddp_repro.trace.launch import Launch

_RAISES: Final = "error"  # of determinism.deterministic_algorithms: what has no deterministic form is an error
_OF_TORCH: Final = frozenset({"aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "inductor", "sparse"})
_COLLECTIVES: Final = frozenset({"c10d", "_c10d_functional", "c10d_functional"})
_ONE_THREAD: Final = "try one thread a rank (threads=1) where it is computed on a CPU"
_OUT_OF_REACH: Final = (
    "Python threads that share tensors, custom or compiled kernels, numbers that no seed reaches (a clock, a generator "
    "of its own)"
)
_PATH: Final = (
    "look for what decides whether it is called: time, exceptions that are caught, or a number that is not seen"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What was in force on a rank: torch's deterministic algorithms, its threads, and whether it had a GPU.

    ``threads`` is ``None`` where that was not recorded.
    """

    is_deterministic: bool = False
    threads: int | None = None
    has_gpu: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What torch's documentation says of an operator under deterministic algorithms, and whether they have a form."""

    words: str
    has_form: bool


def setting_of(launch: Launch, rank: int) -> Setting:
    """Return what was in force on a rank of a launch, as far as its identity tells."""
    identity = launch.identities.get(rank, {})
    switches = _group(_group(identity, "experiment"), "determinism_in_force")
    threads = _group(identity, "environment").get("threads")
    return Setting(
        is_deterministic=switches.get("deterministic_algorithms") == _RAISES,
        threads=threads if isinstance(threads, int) else None,
        has_gpu=bool(_group(identity, "hardware").get("gpus")),
    )


def cure(setting: Setting) -> str:
    """Return what to try against an operator that is not known."""
    if setting.is_deterministic:
        told = "torch's deterministic algorithms were on, so look for what they do not reach: " + _OUT_OF_REACH
        return _with_one_thread(told, setting)
    told = "try determinism=debug, or torch.use_deterministic_algorithms(True) in your own script"
    told = _with_one_thread(told, setting)
    return f"{told}; out of their reach are {_OUT_OF_REACH}"


def cure_of_twins(setting: Setting) -> str:
    """Return what to do where variants part in an operator, which what they override may reach."""
    told = "look for where what the variants override reaches it; if launches of one variant differ as well, "
    return told + cure(setting)


def remedy(setting: Setting) -> str:
    """Return in short what to try where an operator may be the reason."""
    return "determinism=debug was in force already" if setting.is_deterministic else "try determinism=debug"


def cure_of(parted: OperatorDivergence, said: Sequence[Said], setting: Setting) -> str:
    """Return what can help where this operator is the first to differ; empty where that is known no better by it."""
    space, _, _ = parted.operator.operator.partition("::")
    if space in _COLLECTIVES:
        return ""
    if parted.evidence == "path":
        return _PATH
    if parted.evidence == "input":
        return _of_what_it_reads(setting)
    if space not in _OF_TORCH:
        return (
            f"{parted.operator.operator} is no operator of torch's own, and no setting of torch's reaches into it: "
            "look in its code for numbers that no seed reaches, threads and atomic additions"
        )
    said = [one for one in said if setting.has_gpu or "CPU" in one.words or "CUDA" not in one.words]
    return _of_listed(parted, said, setting) if said else _of_unlisted(parted, setting)


def _of_what_it_reads(setting: Setting) -> str:
    told = (
        "look for what makes it: numbers that no seed reaches (a clock, a generator of its own), Python threads, other "
        "libraries, parameters or inputs that are written to between steps"
    )
    if setting.is_deterministic:
        return told
    return (
        f"{told}; determinism=debug helps only where that is a compiled kernel, or memory that nothing was written to"
    )


def _of_listed(parted: OperatorDivergence, said: Sequence[Said], setting: Setting) -> str:
    name = parted.operator.operator
    words = f"torch says of use_deterministic_algorithms(True): {'; '.join(one.words for one in said)}"
    if setting.is_deterministic:
        return (
            f"torch's deterministic algorithms were on, and {name} differs all the same: look for what writes to its "
            f"inputs or its output meanwhile (Python threads, copies that are not waited for); {words}"
        )
    if not any(one.has_form for one in said):
        told = f"torch has no deterministic form of {name}, and determinism=debug would stop there: use another one"
        return f"{_with_one_thread(told, setting)}; {words}"
    told = "set determinism=debug, or torch.use_deterministic_algorithms(True) in your own script"
    return f"{_with_one_thread(told, setting)}; {words}"


def _of_unlisted(parted: OperatorDivergence, setting: Setting) -> str:
    told = (
        f"torch does not list {parted.operator.operator} as nondeterministic: look for what writes to its inputs or "
        "its output meanwhile (Python threads, copies that are not waited for, other libraries)"
    )
    if setting.has_gpu and not setting.is_deterministic:
        told = f"{told}; try determinism=debug, which also fixes what cuBLAS and cuDNN choose"
    elif not setting.is_deterministic:
        told = f"{told}; determinism=debug is not known to help"
    return _with_one_thread(told, setting)


def _with_one_thread(told: str, setting: Setting) -> str:
    return told if setting.threads == 1 else f"{told}; {_ONE_THREAD}"


def _group(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    held = tree.get(name)
    return held if isinstance(held, Mapping) else {}
