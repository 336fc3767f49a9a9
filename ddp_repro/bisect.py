"""Answers `bisect`: launches diverge; which setting has to be switched off for them to be equal."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("bisect")

from dataclasses import replace

from ddp_repro.cli import Command, run_command
from ddp_repro.config import BisectConfig, save_config
from ddp_repro.errors import ExitCode, ReproError, Verdict
from ddp_repro.judge.bisection import Bisection, Culprit, answers_of, ends_problem, notes_on, told_of
from ddp_repro.judge.judgement import ordered
from ddp_repro.judge.outcomes import Bounds, Outcomes, OutOfLaunchesError
from ddp_repro.judge.search import NOTHING, Found, Outcome, Strategy, search
from ddp_repro.page import open_where_wanted, page_told
from ddp_repro.questions import Questions
from ddp_repro.report.bisection import bisection_document, bisection_tables, print_bisection, print_outcome
from ddp_repro.report.html.tables import write_tables
from ddp_repro.run.driver import Interrupted, Invocation
from ddp_repro.run.place import place_run
from ddp_repro.suspects import Suspects, not_taken, suspects_of
from ddp_repro.trace.document import write_json
from ddp_repro.trace.layout import RunFolder
from ddp_repro.validation import validate_bisect, validate_launch


def bisect(config: BisectConfig, invocation: Invocation) -> ExitCode:
    """Search for the suspects that have to be off, report; return 1 where they were found."""
    validate_launch(config)
    validate_bisect(config)
    suspects = suspects_of(config, invocation)
    if not suspects.ones:
        told = "; ".join(f"{name}: {reason}" for name, reason in suspects.left_out.items())
        raise ReproError(f"there is no suspect to switch off ({told}).", hint="docs/bisect.md shows how to name some.")
    folder = place_run(config.output)
    save_config(config, folder.config)
    write_json(folder.run, {"schema": 1, "kind": "bisect", "command": invocation.text})
    bisection = _Bisecting(suspects, folder).run()
    document = bisection_document(bisection, folder, invocation.text)
    write_json(folder.verdict, document)
    written = page_told(
        folder, config.report, lambda: write_tables(folder.report, document, bisection_tables(document))
    )
    print_bisection(bisection, folder, written)
    open_where_wanted(folder, config.report, written)
    return bisection.verdict.exit_code


class _Bisecting:
    """One search, from its ends to its result."""

    def __init__(self, suspects: Suspects, folder: RunFolder) -> None:
        options = suspects.config.bisect
        self._suspects = suspects
        self._questions = Questions(suspects, folder, self._tell)
        bounds = Bounds(
            launches=suspects.config.launches,
            first=options.first,
            confidence=options.confidence,
            most=options.most,
        )
        self._outcomes = Outcomes(self._questions.look, bounds)

    def run(self) -> Bisection:
        """Search and return the result; one that was interrupted, or ran out of launches, is none."""
        try:
            return self._searched()
        except Interrupted as stop:
            return self._without_result(Verdict.NOT_JUDGED, f"interrupted by {stop.signal_name}")
        except OutOfLaunchesError:
            told = f"bisect.most={self._suspects.config.bisect.most} launches are used up; raise it, or skip suspects"
            return self._without_result(Verdict.NOT_JUDGED, told)

    def _searched(self) -> Bisection:
        self._outcomes.first()
        names = [one.name for one in self._suspects.ones]
        problem = ends_problem(self._outcomes, frozenset(names))
        if problem is None:
            self._outcomes.ask(frozenset(names))
            problem = ends_problem(self._outcomes, frozenset(names))
        if problem is not None:
            return self._without_result(*problem)
        names = self._that_took(names)
        strategy = Strategy(self._suspects.config.bisect.strategy.value)
        found = search(names, self._outcomes.ask, self._outcomes.confirm, strategy)
        if found is None:
            end = ends_problem(self._outcomes, frozenset(names))
            return self._without_result(*(end or (Verdict.NOT_JUDGED, "no set of suspects was seen to be the reason")))
        return self._with_result(found)

    def _that_took(self, names: list[str]) -> list[str]:
        """Return the suspects that are off where they are switched off; the answer with all off stands without them."""
        everything = frozenset(names)
        config = self._suspects.with_off(everything)
        identity = self._questions.launches(everything)[0].identities[0]
        others = not_taken(self._suspects, config, identity)
        kept = [name for name in names if name not in others]
        if kept and others:
            self._suspects = self._suspects.without(others)
            self._outcomes.seen[frozenset(kept)] = self._outcomes.seen.pop(everything)
        return kept or names

    def _with_result(self, found: Found) -> Bisection:
        sentence, confidence, rare = told_of(found, self._outcomes)
        by_name = {one.name: one for one in self._suspects.ones}
        culprits = [
            Culprit(
                name=name,
                overrides=self._suspects.overrides(frozenset({name})),
                cost=by_name[name].cost,
                together=tuple(other for other in core if other != name),
            )
            for name, core in zip(found.off, found.cores, strict=True)
        ]
        return replace(
            self._without_result(Verdict.DIVERGED, sentence),
            culprits=tuple(culprits),
            confidence=confidence,
            rarest=rare,
            notes=tuple(notes_on(found)),
            problems=(),
            equal=self._command(*self._suspects.overrides(frozenset(found.off))),
        )

    def _without_result(self, verdict: Verdict, sentence: str) -> Bisection:
        judgement = self._questions.judgements.get(NOTHING)
        findings = ordered(judgement.findings, self._command()) if judgement is not None else []
        diverged = NOTHING in self._outcomes.seen and self._outcomes.seen[NOTHING].outcome is Outcome.YES
        return Bisection(
            verdict=verdict,
            sentence=sentence,
            answers=answers_of(self._outcomes, [one.name for one in self._suspects.ones]),
            left_out=dict(self._suspects.left_out),
            finding=findings[0] if findings and diverged else None,
            problems=(sentence,) if verdict is Verdict.NOT_JUDGED else (),
            diverging=self._command() if diverged else "",
            identity=judgement.identity if judgement is not None else "",
        )

    def _command(self, *more: str) -> str:
        """Return the command line of `check` for what is searched."""
        own = self._suspects.invocation
        replaced = {one.partition("=")[0] for one in more} | {"output.dir", "output.overwrite"}
        kept = tuple(
            one
            for one in own.overrides
            if not one.lstrip("+~").startswith("bisect") and one.lstrip("+").partition("=")[0] not in replaced
        )
        return replace(own, command="check", overrides=kept).with_overrides(*more)

    def _tell(self, line: str) -> None:
        if self._suspects.config.output.progress:
            print_outcome(line)


def main() -> None:
    """Run as ``python -m ddp_repro.bisect``."""
    run_command(Command(name="bisect", schema=BisectConfig, run=bisect))
