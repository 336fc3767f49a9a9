"""What a second look at the step in which launches part adds to the finding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ddp_repro.judge.distance import distance_of
from ddp_repro.judge.divergence import LaunchDivergence, compare_launches
from ddp_repro.judge.findings import Distance, Element, Finding, Variant
from ddp_repro.judge.operators import OperatorDivergence, first_operator
from ddp_repro.judge.twins import Comparing
from ddp_repro.judge.wording import counted
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.tensors import Stored

PARTS: Final = {
    "forward": "forward",
    "loss": "forward",
    "grad_local": "backward",
    "grad_reduced": "backward",
    "grad_step": "forward",
    "param": "optimizer",
    "optimizer": "optimizer",
    "buffer": "forward",
}
"""Of which part of a step operators' tensors are kept, by the phase in which launches part."""
_CAUSES: Final = frozenset(
    {
        "forward-inputs",
        "forward-operator",
        "backward-operator",
        "reduction-order",
        "gradient",
        "gradient-processing",
        "optimizer",
        "optimizer-state",
        "buffers",
        "thread-count",
        "recomputation",
    }
)
_FROM_OUTSIDE: Final = {
    "forward-operator": "the forward reads what is not reproducible",
    "backward-operator": "the backward reads what is not reproducible",
}
"""Titles where no operator is to blame, but what one reads."""
_WITNESSES: Final = ("launches", "twins")
_OF_ANY_OPERATOR: Final = ("forward-operator", "backward-operator", "gradient")
"""Causes whose advice is on an operator that is not known, and on nothing besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What two more launches showed: where they part (``None``: nowhere), and in which operator, where it was seen."""

    parted: LaunchDivergence | None
    operator: OperatorDivergence | None

    @property
    def step(self) -> int | None:
        """The step in which they part."""
        return None if self.parted is None or self.parted.first is None else self.parted.first.step


def worth_a_look(findings: Sequence[Finding]) -> Finding | None:
    """Return the first error, if it is a difference between launches or twins that an operator can be named for."""
    first = next((found for found in findings if found.severity == "error"), None)
    if first is None or first.witness not in _WITNESSES or first.cause not in _CAUSES or first.phase not in PARTS:
        return None
    return first if first.step is not None and first.step >= 0 else None


def looked(a: Launch, b: Launch, *, are_twins: bool = False) -> Look:
    """Compare two launches whose operators were observed, of one variant or of two."""
    variants = tuple(Variant(overrides=(), launches=(one.index,), allow=()) for one in (a, b)) if are_twins else ()
    one, other, _ = Comparing(variants=variants).sides(a, b)
    parted = compare_launches(one, other)
    if parted is None or parted.first is None:
        return Look(parted=parted, operator=None)
    rank = next(rank for rank, divergence in parted.by_rank.items() if divergence is parted.first)
    # Rows were left out of what was compared; the number of a row in the whole trace stays with it.
    sides = zip((one, other), parted.first.rows, strict=True)
    before = tuple(None if row is None else int(side.traces[rank].seq[row]) for side, row in sides)
    found = first_operator(a.traces[rank], b.traces[rank], parted.first.step, before=(before[0], before[1]))
    return Look(parted=parted, operator=found)


def with_operator(found: Finding, parted: OperatorDivergence) -> Finding:
    """Return the finding with the operator named: by what it reads, what it leaves, and where it is called."""
    operator = parted.operator
    words = {
        "output": "is the first whose inputs are equal in bits and whose output differs",
        "input": "is the first that differs, and no operator that was observed made what it reads: that comes from a "
        "number or a generator of its own, from another thread or library, from what was written to between steps, or "
        "from a kernel that is not seen (compiled, fused)",
        "path": "is called in one launch only",
    }[parted.evidence]
    where = f" in the backward of {operator.node.removesuffix('0')}" if operator.node else ""
    inside = f" of {operator.module}" if operator.module else ""
    shapes = f" ({operator.reads or 'no tensor'} -> {operator.leaves or 'nothing'})"
    told = f"operator {operator.operator}{inside}{where}, {operator.source}{shapes} {words}"
    seen = f"(rank {parted.rank}, step {parted.step} of the second look)"
    message = f"{found.message}; {told} {seen}"
    is_odd = parted.evidence == "input" and found.witness == "launches"
    title = _FROM_OUTSIDE.get(found.cause, found.title) if is_odd else found.title
    return replace(found, title=title, operator=operator.operator, source=operator.source, message=message)


def with_module(found: Finding, look: Look) -> Finding:
    """Return the finding with the first module whose output differs, where the second look saw one."""
    first = None if look.parted is None else look.parted.first
    if first is None or first.phase != "forward":
        return found
    return replace(found, message=f"{found.message}; the first module whose output differs is {first.name}")


def with_cure(found: Finding, cure: str, parted: OperatorDivergence) -> Finding:
    """Return the finding with what can help against its operator, instead of what may help against any."""
    # What a reduction reads in another order was told already.
    if not cure or (found.cause == "reduction-order" and parted.evidence != "output"):
        return found
    return replace(found, advice=cure if found.cause in _OF_ANY_OPERATOR else f"{found.advice}; {cure}")


def with_distance(found: Finding, distance: Distance) -> Finding:
    """Return the finding with how far the operator's output is apart."""
    return replace(found, distance=distance, message=f"{found.message}; {in_words(distance)}")


def without_return(found: Finding, alike: Sequence[Sequence[int]], more: int) -> Finding:
    """Return the finding with the rate at which it was seen, where ``more`` launches did not show it again."""
    if found.witness == "twins":
        told = f"a second look ({counted(more, 'launch')}) did not show it again"
        return replace(found, message=f"{found.message}; {told}: it is not only what the variants override")
    launches = sum(len(one) for one in alike)
    apart = launches - max((len(one) for one in alike), default=0)
    rate = f"{apart} of {counted(launches, 'launch')}" if launches else "the first launches"
    told = f"it was seen in {rate}, and a second look ({counted(more, 'launch')}) did not show it again"
    return replace(found, message=f"{found.message}; {told}")


def output_distance(
    tensors: tuple[Mapping[str, Stored], Mapping[str, Stored]], calls: tuple[str, str]
) -> Distance | None:
    """Return the distance of the first output of a call that differs among kept tensors; ``None`` for none.

    ``calls`` are its names in the two launches.
    """
    a, b = (
        {_number(name): one for name, one in side.items() if name.startswith(f"{call}.out")}
        for side, call in zip(tensors, calls, strict=True)
    )
    numbers = sorted(a.keys() & b.keys())
    return next((found for number in numbers if (found := distance_of(a[number], b[number])) is not None), None)


def of_call(tensors: Mapping[str, Stored], call: str) -> dict[str, Stored]:
    """Return what was kept of one call."""
    return {name: one for name, one in tensors.items() if name.startswith((f"{call}.in", f"{call}.out"))}


def _number(name: str) -> int:
    return int(name.rpartition(".out")[2])


def in_words(distance: Distance) -> str:
    """Return a distance as a phrase, with the first element that differs."""
    parts = [f"{distance.elements:,} of {counted(distance.of, 'element')} of its output differ"]
    if distance.max_ulp is not None:
        parts.append(f"by up to {distance.max_ulp:,} ULP (median {distance.median_ulp:,})")
    if distance.max_abs is not None and distance.max_rel is not None:
        parts.append(f"{distance.max_abs:.3g} at most, {distance.max_rel:.3g} relative")
    if distance.nans:
        parts.append(f"{counted(distance.nans, 'pair')} with a NaN")
    return ", ".join(parts) + "".join(f"; first {told(one)}" for one in distance.first[:1])


def told(element: Element) -> str:
    """Return ``[3, 1]: 0.125 (0x3e000000) against 0.25 (0x3e800000)``."""
    place = f"{list(element.index)}: " if element.index else ""
    pairs = (f"{value} ({bits})" for value, bits in zip(element.values, element.bits, strict=True))
    return place + " against ".join(pairs)
