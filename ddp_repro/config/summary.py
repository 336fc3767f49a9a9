"""The schema of `summary`."""

from dataclasses import dataclass, field


@dataclass(kw_only=True)
class SummaryConfig:
    """The folders of runs to tell of in one table, and the folder that it is written into.

    ``names`` are what the runs are called, else their overrides. ``into`` None is the folder that
    holds all of the runs.
    """

    runs: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    into: str | None = None
