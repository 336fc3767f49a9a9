"""Makes the page of a run: ``verdict.json`` says what was found, the traces show where."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ddp_repro.errors import ReproError
from ddp_repro.judge.as_compared import How
from ddp_repro.judge.findings import Variant
from ddp_repro.judge.identity import fields_of
from ddp_repro.judge.resume_judgement import Stretch
from ddp_repro.judge.wording import counted, numbered
from ddp_repro.report.html.chain import chain
from ddp_repro.report.html.charts import distance, growth, losses
from ddp_repro.report.html.gathering import Gathered, gather
from ddp_repro.report.html.grid import Grid, grid
from ddp_repro.report.html.places import CALLED, COLOURS, EQUAL, SURFACES
from ddp_repro.report.html.seen import Look
from ddp_repro.report.html.source import Files, Source
from ddp_repro.report.html.telling import classes_told, cut, in_json, other_keys, sentence, told
from ddp_repro.report.screen import printable
from ddp_repro.trace.document import read_json, write_text
from ddp_repro.trace.layout import RunFolder

_VERDICT_SCHEMA: Final = 1
_NUMBER_OF_WORKERS: Final = "experiment.config.data.num_workers"
_ITEMS: Final = 500
_UNREAD: Final = 20
_VALUE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What the traces show: the map, the chain, the pictures; ``notes`` say what could not be shown, and why.

    The map compares the launches of ``pair``, or, in the launch ``within[0]``, all ranks with rank ``within[1]``.
    """

    pair: tuple[int, int] | None
    within: tuple[int, int] | None
    gathered: Gathered
    grid: Grid | None
    notes: list[str]


def write_page(run: RunFolder, source: Source | None = None) -> Path:
    """Write ``report.html`` from the run's files, or from traces that were read already; return its path.

    Raises ReproError where the run holds no verdict, or the file cannot be written.
    """
    verdict = read_json(run.verdict)
    if verdict.get("schema") != _VERDICT_SCHEMA or "findings" not in verdict:
        raise ReproError(f"{run.verdict} is no verdict of this version", hint="judge the run again with compare")
    write_text(run.report, page(verdict, _read_identity(run), source or Files.of(run.path, verdict)))
    return run.report


def page(verdict: Mapping[str, Any], identity: Mapping[str, Any], source: Source) -> str:
    """Return the page, one HTML document that needs nothing else."""
    traced = _traced(verdict, source)
    script = Markup(_template("page.js"))  # noqa: S704  the package's own file
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            verdict=verdict,
            sentence=sentence(verdict),
            findings=[told(one) for one in verdict["findings"][:_ITEMS]],
            left_out=max(0, len(verdict["findings"]) - _ITEMS),
            classes=classes_told(verdict["classes"]),
            records={entry["launch"]: source.record(entry["launch"]) for entry in verdict["launches"]},
            variants=_variants_by_launch(verdict),
            identity=[(name, cut(in_json(value), _VALUE)) for name, value in fields_of(identity).items()],
            provenance=_flat(identity.get("provenance", {})),
            more=other_keys(verdict),
            traced=traced,
            chain=_chain(traced),
            charts=_charts(traced),
            losses=losses(traced.gathered.losses),
            ranks=[_rank_told(one) for one in traced.gathered.ranks],
            colours=COLOURS,
            surfaces=SURFACES,
            equal=EQUAL,
            called=CALLED,
            style=Markup(_template("page.css")),  # noqa: S704  the package's own file
            script=script,
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("ddp_repro.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters["numbered"] = lambda numbers, noun: numbered(noun, numbers)
    made.filters["as_value"] = lambda value: cut(in_json(value), _VALUE)
    return made


def _shown(value: Any) -> Any:
    """Show as an escape whatever in a text could move or hide other text; what is markup already is ours."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _template(name: str) -> str:
    return Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8")


def _read_identity(run: RunFolder) -> dict[str, Any]:
    """Return the run's identity; a run that only compares others has none of its own."""
    return read_json(run.identity) if run.identity.exists() else {}


def _traced(verdict: Mapping[str, Any], source: Source) -> Traced:
    numbers = [int(entry["launch"]) for entry in verdict["launches"]]
    within = _within(verdict, source)
    pair, notes = (None, []) if within else _pair(verdict, numbers)
    look = Look(
        launches=numbers,
        pair=pair,
        how=_how(verdict),
        unfinished=_unfinished(verdict, source),
        reference=source.of_rank(*within) if within else None,
    )
    gathered = gather(source, look)
    has_map = any(len(one.first) > 1 for one in gathered.ranks)
    notes += gathered.unread[:_UNREAD]
    left = len(gathered.unread) - _UNREAD
    notes += [f"{counted(left, 'more trace')} could not be read either."] if left > 0 else []
    notes += [] if has_map or pair is None else ["No rank was observed in both launches: there is no map."]
    notes += _mismatch(verdict, gathered) if has_map else []
    drawn = grid(gathered.ranks) if has_map else None
    return Traced(pair=pair, within=within, gathered=gathered, grid=drawn, notes=notes)


def _drawn(verdict: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the finding that the map draws: the first one that has a place in two launches or ranks."""
    witnesses = ("launches", "twins", "ranks")
    return next((one for one in verdict["findings"] if one["witness"] in witnesses and one["launches"]), None)


def _within(verdict: Mapping[str, Any], source: Source) -> tuple[int, int] | None:
    """Return the launch in which ranks are compared, and the rank that they are compared with."""
    found = _drawn(verdict)
    if found is None or found["witness"] != "ranks":
        return None
    launch = found["launches"][0]
    ranks = source.ranks(launch)
    others = [rank for rank in ranks if rank not in found["ranks"]] or ranks
    return (launch, others[0]) if len(ranks) > 1 else None


def _pair(verdict: Mapping[str, Any], numbers: Sequence[int]) -> tuple[tuple[int, int] | None, list[str]]:
    """Return the launches that the map compares: those of the first finding between launches, else the first two."""
    if len(numbers) < 2:
        return None, ["One launch: there is nothing to compare it with, and no map."]
    refused = [one["field"] for one in verdict["identity"]["differences"] if not one["allowed"]]
    if refused:
        return None, ["Launches whose identities differ are not compared with each other: there is no map."]
    found = _drawn(verdict)
    if found is not None and len(found["launches"]) > 1:
        return (found["launches"][0], found["launches"][1]), []
    return (numbers[0], numbers[1]), []


def _unfinished(verdict: Mapping[str, Any], source: Source) -> frozenset[int]:
    """Return the launches that are not known to be whole."""
    numbers = [int(entry["launch"]) for entry in verdict["launches"]]
    if verdict["problems"]:
        return frozenset(numbers)
    records = {number: source.record(number) for number in numbers}
    return frozenset(number for number, one in records.items() if one is None or one.outcome != "finished")


def _mismatch(verdict: Mapping[str, Any], gathered: Gathered) -> list[str]:
    """Return what to say where the traces do not show the verdict's first difference: they are others by now."""
    found, first = _drawn(verdict), gathered.first_step
    if found is None or found["step"] is None or first == found["step"]:
        return []
    seen = "no difference" if first is None else f"the first difference {_at(first)}"
    told = (
        f"The traces show {seen}, and the verdict tells one {_at(found['step'])}: the verdict counts. What stands here "
        "was compared otherwise, or the files are no longer those that were judged."
    )
    return [told]


def _at(step: int) -> str:
    return "before step 0" if step < 0 else f"at step {step}"


def _how(verdict: Mapping[str, Any]) -> How:
    return How(
        ignore=tuple(verdict.get("ignore", ())),
        variants=tuple(
            Variant(overrides=tuple(one["overrides"]), launches=tuple(one["launches"]), allow=tuple(one["allow"]))
            for one in verdict["variants"]
        ),
        stretches=tuple(
            Stretch(
                launch=one["launch"],
                begins=one["begins"],
                stops=one["stops"],
                is_killed=one["killed"],
                compared_to=one["compared_to"],
            )
            for one in verdict.get("stretches", ())
        ),
        other_workers=any(
            one["allowed"] and one["field"] == _NUMBER_OF_WORKERS for one in verdict["identity"]["differences"]
        ),
    )


def _variants_by_launch(verdict: Mapping[str, Any]) -> dict[int, str]:
    return {
        launch: " ".join(one["overrides"]) or "nothing overridden"
        for one in verdict["variants"]
        for launch in one["launches"]
    }


def _chain(traced: Traced) -> dict[str, Any] | None:
    step = traced.gathered.first_step
    return None if step is None else {"step": step, "links": chain(traced.gathered, step)}


def _charts(traced: Traced) -> list[Any]:
    if traced.grid is None or traced.gathered.first_step is None:
        return []
    made = [growth(traced.gathered, traced.grid.steps), distance(traced.gathered, traced.grid.steps)]
    return [one for one in made if one is not None]


def _rank_told(one: Any) -> dict[str, Any]:
    step = one.first_step
    if step is None:
        return {"rank": one.rank, "step": None, "place": None, "name": "", "steps": 0}
    return {
        "rank": one.rank,
        "step": step,
        "place": int(one.first[step + 1]),
        "name": cut(one.name_at(step), _VALUE),
        "steps": int((one.first >= 0).sum()),
    }


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return a tree of objects as dotted names and values."""
    if not isinstance(value, Mapping):
        return [(name, cut(in_json(value), _VALUE))]
    return [pair for key, held in value.items() for pair in _flat(held, f"{name}.{key}" if name else str(key))]
