"""The schema of `survey`: what is accepted, and how hard is looked."""

from dataclasses import dataclass, field

from ddp_repro.config.commands import PageConfig
from ddp_repro.config.launch import RecordConfig


@dataclass(kw_only=True)
class SurveyOptions:
    """Operators that one decides to live with, as globs on operator, source or ``operator@source``.

    Each operator runs ``again`` so many times on the same inputs.
    """

    accept: list[str] = field(default_factory=list)
    again: int = 2


@dataclass(kw_only=True)
class SurveyConfig(RecordConfig):
    """A training whose operators are listed."""

    survey: SurveyOptions = field(default_factory=SurveyOptions)
    report: PageConfig = field(default_factory=PageConfig)
