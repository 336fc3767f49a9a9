"""Makes the page of a run: ``verdict.json`` says what was found, the traces show where."""

import base64
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from markupsafe import Markup

from ddp_repro.errors import ReproError
from ddp_repro.judge.identity import fields_of
from ddp_repro.report.html.chain import chain
from ddp_repro.report.html.charts import distance, growth, losses
from ddp_repro.report.html.environment import LONGEST_VALUE, environment, stylesheet, template
from ddp_repro.report.html.places import CALLED, COLOURS, EQUAL, SURFACES
from ddp_repro.report.html.source import Files, Source
from ddp_repro.report.html.telling import chance, classes_told, cut, in_json, other_keys, sentence, told
from ddp_repro.report.html.traced import Traced, traced_of
from ddp_repro.trace.document import read_json, write_text
from ddp_repro.trace.layout import RunFolder

_VERDICT_SCHEMA: Final = 1
_ITEMS: Final = 500


def write_page(run: RunFolder, source: Source | None = None) -> Path:
    """Write ``report.html`` from the run's files, or from traces that were read already; return its path.

    Raises ReproError where the run holds no verdict, or the file cannot be written.
    """
    verdict = read_json(run.verdict)
    if verdict.get("schema") != _VERDICT_SCHEMA or "kind" in verdict or "findings" not in verdict:
        raise ReproError(f"{run.verdict} is no verdict of this version", hint="judge the run again with compare")
    write_text(run.report, page(verdict, _read_identity(run), source or Files.of(run.path, verdict)))
    return run.report


def page(verdict: Mapping[str, Any], identity: Mapping[str, Any], source: Source) -> str:
    """Return the page, one HTML document that needs nothing else."""
    traced = traced_of(verdict, source)
    script = Markup(template("page.js"))  # noqa: S704  the package's own file
    return (
        environment()
        .get_template("page.html.j2")
        .render(
            verdict=verdict,
            sentence=sentence(verdict),
            chance=chance(verdict),
            findings=[told(one) for one in verdict["findings"][:_ITEMS]],
            left_out=max(0, len(verdict["findings"]) - _ITEMS),
            classes=classes_told(verdict["classes"]),
            records={entry["launch"]: source.record(entry["launch"]) for entry in verdict["launches"]},
            variants=_variants_by_launch(verdict),
            golden=verdict.get("golden"),
            identity=[(name, cut(in_json(value), LONGEST_VALUE)) for name, value in fields_of(identity).items()],
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
            style=stylesheet(),
            script=script,
            script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    )


def _read_identity(run: RunFolder) -> dict[str, Any]:
    """Return the run's identity; a run that only compares others has none of its own."""
    return read_json(run.identity) if run.identity.exists() else {}


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
        "name": cut(one.name_at(step), LONGEST_VALUE),
        "steps": int((one.first >= 0).sum()),
    }


def _flat(value: Any, name: str = "") -> list[tuple[str, str]]:
    """Return a tree of objects as dotted names and values."""
    if not isinstance(value, Mapping):
        return [(name, cut(in_json(value), LONGEST_VALUE))]
    return [pair for key, held in value.items() for pair in _flat(held, f"{name}.{key}" if name else str(key))]
