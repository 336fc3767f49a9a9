"""Where each file of a run lies: the only place that knows their names."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LaunchFolder:
    """The files of one launch; every rank writes only those that carry its number."""

    path: Path

    @property
    def index(self) -> int:
        """Number of the launch within its run, from 0."""
        return int(self.path.name.removeprefix("launch-"))

    @property
    def record(self) -> Path:
        """How the launch ended, written by the driver."""
        return self.path / "launch.json"

    def trace(self, rank: int) -> Path:
        """Return the observations of ``rank``."""
        return self.path / f"rank-{rank}.arrows"

    def log(self, rank: int) -> Path:
        """Return the log of ``rank``."""
        return self.path / f"rank-{rank}.log"

    def rank_identity(self, rank: int) -> Path:
        """Return the identity that ``rank`` found itself to have."""
        return self.path / f"rank-{rank}.identity.json"

    def final(self, rank: int) -> Path:
        """Return what ``rank`` ended with."""
        return self.path / f"rank-{rank}.final.json"

    def timing(self, rank: int) -> Path:
        """Return when the steps of ``rank`` ended, and how much memory it took."""
        return self.path / f"rank-{rank}.timing.json"

    def survey(self, rank: int) -> Path:
        """Return what ``rank`` saw of its operators as they ran again."""
        return self.path / f"rank-{rank}.survey.json"

    def tensors(self, rank: int, step: int) -> Path:
        """Return the tensors of operators that ``rank`` kept in a step."""
        return self.path / f"rank-{rank}.step-{step}.safetensors"

    def kept(self) -> list[Path]:
        """Return all tensors that were kept here."""
        return sorted(self.path.glob("rank-*.step-*.safetensors"))

    def ranks(self) -> list[int]:
        """Return the ranks that left a trace or an identity here, in order."""
        found = {_number(file.name, "rank-") for file in _entries(self.path) if _is_of_rank(file.name)}
        return sorted(rank for rank in found if rank is not None)


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration, one for all ranks."""
        return self.path / "config.yaml"

    def variant_config(self, number: int) -> Path:
        """Return the resolved configuration of variant ``number`` of a run with twins."""
        return self.path / f"config-{number}.yaml"

    @property
    def run(self) -> Path:
        """What was run: the command, its launches, when."""
        return self.path / "run.json"

    @property
    def verdict(self) -> Path:
        """The verdict and everything that the report printed."""
        return self.path / "verdict.json"

    @property
    def report(self) -> Path:
        """The verdict in pictures."""
        return self.path / "report.html"

    @property
    def identity(self) -> Path:
        """The identity that all launches of the run are held to."""
        return self.path / "identity.json"

    @property
    def obtained(self) -> Path:
        """What a launch gave, as a golden, where it is not kept beside the one that it was held against."""
        return self.path / "golden.obtained.arrows"

    @property
    def baseline(self) -> Path:
        """The spread that a later run can be held to."""
        return self.path / "baseline.json"

    def checkpoints(self, number: int) -> Path:
        """Return where the ``number``-th training (from 0) that is stopped and restarted saves its checkpoints."""
        return self.path / "checkpoints" / str(number)

    def look(self, number: int) -> "RunFolder":
        """Return the folder of the ``number``-th further look (from 0) at a step in which launches part."""
        return RunFolder(self.path / f"second-look-{number}")

    def looks(self) -> "list[RunFolder]":
        """Return the further looks that are there."""
        return [RunFolder(path) for path in sorted(self.path.glob("second-look-[0-9]*")) if path.is_dir()]

    def outcome(self, number: int) -> "RunFolder":
        """Return the folder of the ``number``-th outcome (from 0) of a search for what makes launches diverge."""
        return RunFolder(self.path / f"outcome-{number}")

    def parts(self) -> "list[RunFolder]":
        """Return the folders of further launches that are there: looks, and outcomes of a search."""
        return [*self.looks(), *(RunFolder(path) for path in sorted(self.path.glob("outcome-[0-9]*")) if path.is_dir())]

    def launch(self, index: int) -> LaunchFolder:
        """Return the folder of launch ``index`` (from 0)."""
        return LaunchFolder(self.path / f"launch-{index}")

    def launches(self) -> list[LaunchFolder]:
        """Return the launches that are there, in order."""
        numbers = (_number(entry.name, "launch-", exact=True) for entry in _entries(self.path) if entry.is_dir())
        return [self.launch(number) for number in sorted(number for number in numbers if number is not None)]

    def files(self) -> list[Path]:
        """Return the files of the run that exist outside its launches."""
        fixed = (self.config, self.run, self.verdict, self.report, self.identity, self.obtained, self.baseline)
        return [file for file in (*fixed, *sorted(self.path.glob("config-[0-9]*.yaml"))) if file.exists()]


@dataclass(frozen=True, slots=True)
class SummaryFiles:
    """The files that tell of several runs at once, in a folder that holds them all, or anywhere."""

    path: Path

    @property
    def document(self) -> Path:
        """The verdicts, for machines."""
        return self.path / "summary.json"

    @property
    def table(self) -> Path:
        """The same as a table in Markdown."""
        return self.path / "summary.md"

    def outcome(self, number: int) -> Path:
        """Return how run ``number`` ended, written where it ran elsewhere."""
        return self.path / f"{number}.json"

    def run(self, number: int) -> RunFolder:
        """Return the folder of run ``number`` (from 0), where the runs lie beside these files."""
        return RunFolder(self.path / str(number))


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _is_of_rank(name: str) -> bool:
    return name.endswith((".arrows", ".identity.json"))


def _number(name: str, prefix: str, *, exact: bool = False) -> int | None:
    """Return the number that follows ``prefix``; with ``exact``, only where nothing else does."""
    if not name.startswith(prefix):
        return None
    digits = name.removeprefix(prefix)
    digits = digits if exact else digits.partition(".")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and str(int(digits)) == digits else None
