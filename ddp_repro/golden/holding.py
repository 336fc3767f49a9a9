"""Finds the golden that fits a launch, compares the two, and makes, keeps or writes over files as is asked for."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ddp_repro.errors import ReproError
from ddp_repro.golden.asking import Asked
from ddp_repro.judge.findings import FieldDifference, Finding, GoldenOutcome, GoldenState, Judgement
from ddp_repro.judge.golden import Fit, difference, golden_of, nearest, other_observer, untold_end
from ddp_repro.judge.golden_verdict import concluded
from ddp_repro.judge.golden_wording import code_told, moved_told, since_told
from ddp_repro.judge.judgement import ONE_LAUNCH
from ddp_repro.judge.wording import numbered
from ddp_repro.trace.golden import Golden
from ddp_repro.trace.golden_folder import Entries, write_golden
from ddp_repro.trace.launch import Launch


def hold_to_golden(judgement: Judgement, launches: Sequence[Launch], asked: Asked) -> Judgement:
    """Return the judgement on launches, the first of which is held against the golden of its identity as well."""
    if not launches or any(problem != ONE_LAUNCH for problem in judgement.problems):
        told = f"not held against the golden in {asked.folder.path}: the launch cannot be judged"
        outcome = GoldenOutcome(
            state="unjudged", told=told, path=str(asked.folder.path), level=asked.config.golden.level.value
        )
        return replace(judgement, golden=outcome, notes=[*judgement.notes, told])
    is_broken = any(found.severity == "error" for found in judgement.findings)
    outcome, found = _held(launches[0], asked, is_broken=is_broken)
    return concluded(judgement, outcome, found, asked.invocation.again())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What looking at a folder of goldens gave: ``file`` is the golden meant, ``told`` what is wrong with it.

    ``own`` is where the golden of this launch lies, or would: the same one, unless another identity's is meant.
    """

    state: GoldenState
    file: Path
    own: Path
    told: str = ""
    golden: Golden | None = None
    found: Finding | None = None
    moved: tuple[FieldDifference, ...] = ()


def _held(launch: Launch, asked: Asked, *, is_broken: bool) -> tuple[GoldenOutcome, Finding | None]:
    made = golden_of(launch, asked.keeping)
    entries = asked.folder.entries()
    looked = _look(launch, made, entries, asked)
    outcome = GoldenOutcome(
        state=looked.state,
        told=looked.told,
        path=str(asked.folder.path),
        level=looked.golden.level if looked.golden else made.level,
        file=str(looked.file),
        moved=looked.moved,
        unused=tuple(str(file) for file in (*entries.goldens, *entries.unreadable) if file != looked.file),
        code=(looked.golden.code if looked.golden else None, made.code),
    )
    outcome = _written(outcome, looked, made, asked, is_broken=is_broken)
    return outcome, looked.found if outcome.state == "changed" else None


def _look(launch: Launch, made: Golden, entries: Entries, asked: Asked) -> _Looked:
    """Return how the launch stands to the golden of its identity, or to the nearest one."""
    own = asked.folder.file(made.key)
    allow = tuple(asked.config.compare.allow)
    fit = nearest(entries.goldens, launch, asked.keeping, allow, own=own)
    unread = own if own in entries.unreadable else next(iter(entries.unreadable), None)
    if unread is not None and (fit is None or (fit.refused and unread == own)):
        return _Looked(state="unreadable", file=unread, own=own, told=entries.unreadable[unread])
    if fit is None:
        return _Looked(state="missing", file=own, own=own, told=f"there is no golden in {asked.folder.path}")
    own = fit.file if fit.golden.key == made.key else own  # whatever it was renamed to
    return _stale(fit, own, fit.refused) if fit.refused else _compared(fit, own, (launch, made), asked)


def _compared(fit: Fit, own: Path, obtained: tuple[Launch, Golden], asked: Asked) -> _Looked:
    """Return whether a launch is what a golden of its identity holds."""
    launch, made = obtained
    if untold_end(fit.golden, launch):
        told = f"{fit.file}: only one of golden and launch tells what training ended with"
        return _Looked(state="stale", file=fit.file, own=own, told=told, golden=fit.golden)
    apart = difference(fit.golden, launch, asked.keeping, made)
    if apart is None:
        told = f"{fit.file} matched{code_told(fit.golden.code, made.code)}"
        return _Looked(state="matched", file=fit.file, own=own, told=told, golden=fit.golden, moved=fit.moved)
    observer = other_observer(fit.golden, asked.keeping)
    if observer is not None:
        return _stale(fit, own, (observer,))
    told = f"{fit.file} holds something else{code_told(fit.golden.code, made.code)}"
    found = apart.finding(since_told(fit.golden.code, made.code))
    return _Looked(state="changed", file=fit.file, own=own, told=told, golden=fit.golden, found=found, moved=fit.moved)


def _stale(fit: Fit, own: Path, moved: tuple[FieldDifference, ...]) -> _Looked:
    told = f"the golden {fit.file} is stale: {moved_told(moved)} (golden against now)"
    return _Looked(state="stale", file=fit.file, own=own, told=told, golden=fit.golden, moved=fit.moved or moved)


def _written(outcome: GoldenOutcome, looked: _Looked, made: Golden, asked: Asked, *, is_broken: bool) -> GoldenOutcome:
    """Make a missing golden, write over one that is accepted, or keep beside it what was obtained."""
    beside = asked.folder.obtained(looked.own)
    if looked.state == "matched":
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        return outcome
    is_missing = looked.state == "missing"
    if is_missing and asked.is_in_ci:
        why = f"and none is made in CI (CI={asked.environ['CI']}): make it on a machine of your own and commit it"
        return replace(outcome, told=f"{outcome.told}, {why}")
    if (is_missing or asked.config.golden.accept) and is_broken:
        why = "nothing was kept as a golden, since what must hold in a launch, or between launches, does not"
        return replace(outcome, told=f"{outcome.told}; {why}")
    if is_missing or asked.config.golden.accept:
        return _made(outcome, looked, made)
    return replace(outcome, obtained=_obtained(made, beside, asked), accept=asked.accept)


def _made(outcome: GoldenOutcome, looked: _Looked, made: Golden) -> GoldenOutcome:
    is_missing = looked.state == "missing"
    try:
        write_golden(looked.own, made, over=not is_missing)
    except ReproError as error:
        return replace(outcome, told=f"{outcome.told}, and it was not kept: {error}")
    told = (
        f"{outcome.told}, so this launch was kept as one, {looked.own}: nothing was judged; run again, and commit it"
        if is_missing
        else f"{looked.own} was written as golden.accept=true says: nothing was judged; run again without it"
        + (f" (it differed first {_place(looked.found)})" if looked.found else "")
    )
    return replace(
        outcome, state="created" if is_missing else "accepted", told=told, level=made.level, file=str(looked.own)
    )


def _place(found: Finding) -> str:
    where = "at the end" if found.step is None else "before step 0" if found.step < 0 else f"in step {found.step}"
    return f"{where}, {numbered('rank', found.ranks)}, {found.phase}"


def _obtained(made: Golden, beside: Path, asked: Asked) -> str | None:
    """Keep what was obtained beside the golden; in the run's folder in CI, or where that cannot be written."""
    for file in (asked.run.obtained,) if asked.is_in_ci else (beside, asked.run.obtained):
        with suppress(ReproError):
            write_golden(file, made, over=True)
            return str(file)
    return None
