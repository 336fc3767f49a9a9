"""What judging results in: findings, differing identity fields, and the judgement that holds them."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ddp_repro.errors import Verdict

Witness = Literal["launches", "ranks", "twins", "invariants", "identity", "golden"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element that differs: its place in the tensor, and both values in full precision and as their bits (hex)."""

    index: tuple[int, ...]
    values: tuple[str, str]
    bits: tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Distance:
    """How far two values are apart, over the ``elements`` of ``of`` that differ in bits.

    ``max_ulp`` and ``median_ulp`` are in units in the last place (``None`` where every one of these pairs has a NaN in
    it; ``nans`` counts those). Infinity lies one unit beyond the largest number. ``max_abs`` and ``max_rel`` (of the
    larger of both) are over pairs of finite numbers. ``first`` are the first elements that differ. ``by_ulp`` counts
    pairs of numbers by the bits that their distance takes: 0 units, 1, 2 to 3, 4 to 7, and so on, up to the largest.
    """

    max_ulp: int | None
    elements: int
    of: int
    median_ulp: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    nans: int = 0
    first: tuple[Element, ...] = ()
    by_ulp: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was found, placed as exactly as the traces allow.

    ``cause`` is an identifier, ``title`` the same in words. ``step`` is ``None`` where the finding has no place in time
    (software, a missing rank). ``names`` are all names concerned in that step and phase, ``name`` is the first.
    """

    witness: Witness
    severity: Severity
    cause: str
    title: str = ""
    launches: tuple[int, ...]
    step: int | None = None
    ranks: tuple[int, ...] = ()
    phase: str = ""
    name: str = ""
    names: tuple[str, ...] = ()
    operator: str | None = None
    source: str | None = None
    distance: Distance | None = None
    message: str
    advice: str
    reproduce: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDifference:
    """An identity field (dotted) that differs; ``values`` holds one value a launch, in order of the launches."""

    field: str
    values: list[Any]
    allowed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A launch that was ended early: the step below which all was recorded (``at``), and the first difference."""

    launch: int
    at: int
    step: int
    ranks: tuple[int, ...]
    phase: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chance:
    """What equal launches do not exclude: that ``rate`` of all launches give other bits.

    So many ``launches`` are then all equal with a probability of ``missed``.
    """

    launches: int
    rate: float
    missed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One of several variants that must not differ in bits: what it overrides, and the launches that were made of it.

    ``allow`` are the identity fields (dotted; a prefix allows all below it) that its overrides moved.
    """

    overrides: tuple[str, ...]
    launches: tuple[int, ...]
    allow: tuple[str, ...]

    @property
    def called(self) -> str:
        """How the variant is called in a sentence."""
        return " ".join(self.overrides) or "nothing overridden"


GoldenState = Literal["created", "matched", "changed", "stale", "accepted", "missing", "unreadable", "unjudged"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenOutcome:
    """What became of the golden that launches were held against.

    ``file`` is the golden, ``obtained`` what is kept beside it where it no longer fits. ``moved`` are the identity
    fields (and ``judge.ignore``) by which a golden is stale, ``unused`` the other files of the folder. ``code`` tells
    of golden and launch where their code came from (``None``: there is no golden). ``accept`` is the command that has
    the launch be the golden, ``told`` the outcome in a sentence.
    """

    state: GoldenState
    told: str
    path: str
    level: str
    file: str | None = None
    obtained: str | None = None
    accept: str = ""
    moved: tuple[FieldDifference, ...] = ()
    unused: tuple[str, ...] = ()
    code: tuple[dict[str, Any] | None, dict[str, Any]] = (None, {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict and everything that led to it.

    ``classes`` are the launches in classes of equal bits, ``problems`` the reasons for which nothing could be
    concluded, ``identity`` the digest of the first launch's identity, ``observations`` the number of rows read over all
    launches and ranks, ``folders`` where each launch lies, by its number here, ``variants`` the twins, where launches
    were made of several, ``nodes`` the number and host of each rank's node, where there were several, ``ended`` what
    was ended early, ``chance`` what equal launches leave open, ``golden`` what became of the golden, where they were
    held against one.
    """

    verdict: Verdict
    classes: list[list[int]]
    findings: list[Finding]
    problems: list[str]
    notes: list[str]
    identity: str = ""
    identity_differences: list[FieldDifference] = field(default_factory=list)
    observations: int = 0
    folders: dict[int, str] = field(default_factory=dict)
    variants: tuple[Variant, ...] = ()
    nodes: dict[int, tuple[int, str]] = field(default_factory=dict)
    ended: tuple[Ended, ...] = ()
    chance: Chance | None = None
    golden: GoldenOutcome | None = None


def merged(findings: list[Finding]) -> list[Finding]:
    """Return the findings with those that are the same in several launches told once, with all those launches."""
    kept: dict[Finding, set[int]] = {}
    for finding in findings:
        kept.setdefault(replace(finding, launches=()), set()).update(finding.launches)
    return [replace(finding, launches=tuple(sorted(launches))) for finding, launches in kept.items()]
