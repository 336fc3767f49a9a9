"""Answers one question of `bisect` after the other: launches with some suspects off, judged as `check` judges them."""

from collections.abc import Callable

from ddp_repro.config import BisectConfig
from ddp_repro.errors import ReproError, Verdict
from ddp_repro.judge.findings import Judgement
from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.judge.outcomes import Seen
from ddp_repro.judge.repeats import Sample
from ddp_repro.judge.search import Off, Outcome
from ddp_repro.report.progress import Progress
from ddp_repro.run.launch import Plan, make_launches
from ddp_repro.run.variants import Variant
from ddp_repro.suspects import Suspects
from ddp_repro.trace.launch import Launch, load_launch
from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.sharing import SharedColumns


class Questions:
    """The launches of a search, each outcome's in a folder of its own; ``told`` gets a line on each outcome."""

    def __init__(self, suspects: Suspects, folder: RunFolder, told: Callable[[str], None]) -> None:
        self._suspects = suspects
        self._folder = folder
        self._told = told
        self._columns = SharedColumns()  # of launches that are equal, one is held in memory
        self._launches: dict[Off, list[Launch]] = {}
        self._configs: dict[Off, BisectConfig] = {}
        self.judgements: dict[Off, Judgement] = {}

    def launches(self, off: Off) -> list[Launch]:
        """Return the launches that were made with these off."""
        return self._launches.get(off, [])

    def look(self, off: Off, least: int, most: int) -> Seen:
        """Make launches with these suspects off: ``most`` in all, or fewer if they diverge, but ``least``."""
        made = self._launches.setdefault(off, [])
        number = list(self._launches).index(off)
        outcome, why = Outcome.NO, ""
        try:
            while len(made) < most and (outcome is Outcome.NO or len(made) < least):
                self._launch(off, number, made)
                outcome, why = self._judged(off, made)
                if outcome is Outcome.UNKNOWN:
                    break
        except ReproError as error:
            outcome, why = Outcome.UNKNOWN, str(error)
        seen = Seen(outcome=outcome, sample=self._sample(off, made), number=number, why=why)
        self._told(_line(off, seen))
        return seen

    def _launch(self, off: Off, number: int, made: list[Launch]) -> None:
        if off not in self._configs:
            self._configs[off] = self._suspects.with_off(off)
        config, run = self._configs[off], self._folder.outcome(number)
        run.path.mkdir(exist_ok=True)
        variants = [Variant(config=config, launches=(launch,)) for launch in range(len(made) + 1)]
        plan = Plan(folder=run, config=config, variants=variants)
        with Progress(enabled=config.output.progress, noun=f"outcome {number}, launch") as progress:
            make_launches(plan, self._suspects.invocation, progress, made=len(made))
        made.append(load_launch(run.launch(len(made)), self._columns))

    def _judged(self, off: Off, made: list[Launch]) -> tuple[Outcome, str]:
        config = self._suspects.config
        if len(made) < 2 and not made[0].problems:
            return Outcome.NO, ""
        rules = Rules(allow=tuple(config.compare.allow), level=config.level, ignore=tuple(config.judge.ignore))
        judgement = self.judgements[off] = judge(made, rules)
        if judgement.verdict is Verdict.NOT_JUDGED:
            return Outcome.UNKNOWN, judgement.problems[0]
        return Outcome.YES if judgement.verdict is Verdict.DIVERGED else Outcome.NO, ""

    def _sample(self, off: Off, made: list[Launch]) -> Sample:
        judgement = self.judgements.get(off)
        classes = judgement.classes if judgement is not None else []
        if judgement is None or judgement.verdict is not Verdict.DIVERGED:
            return Sample(launches=len(made), alike=len(made))
        showing = {launch for one in judgement.findings if one.severity == "error" for launch in one.launches}
        if len(classes) < 2:  # each launch shows it by itself
            return Sample(launches=len(made), alike=len(made) - len(showing))
        return Sample(launches=len(made), alike=max(map(len, classes)))


def _line(off: Off, seen: Seen) -> str:
    what = f"{', '.join(sorted(off))} off" if off else "as it is"
    return f"outcome {seen.number}, {what}: {seen.outcome.value}{f' ({seen.why})' if seen.why else ''}"
