"""What is known of a divergence when its cause is looked for."""

from collections.abc import Mapping
from dataclasses import dataclass

from ddp_repro.judge.comparison import Divergence
from ddp_repro.judge.divergence import LaunchDivergence
from ddp_repro.trace.launch import Launch
from ddp_repro.trace.reader import Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of a divergence: both launches, the rank on which it is first, and that rank's traces."""

    a: Launch
    b: Launch
    found: LaunchDivergence
    first: Divergence
    rank: int

    @property
    def traces(self) -> tuple[Trace, Trace]:
        """The traces of the rank that differs first."""
        return self.a.traces[self.rank], self.b.traces[self.rank]

    def names(self, phase: str) -> tuple[str, ...]:
        """Return the names of ``phase`` that differ in the first step on that rank."""
        return self.first.names.get(phase, ())

    def values(self) -> tuple[float, float] | None:
        """Return the numbers that differ, where both rows hold one."""
        row_a, row_b = self.first.rows
        if row_a is None or row_b is None:
            return None
        trace_a, trace_b = self.traces
        if not (trace_a.valid[row_a] and trace_b.valid[row_b]):
            return None
        return float(trace_a.value[row_a]), float(trace_b.value[row_b])


Told = tuple[str, Mapping[str, str]]
"""A cause, and the gaps of its sentences that only it can fill."""
