"""How pages are made of templates: whatever they show is escaped."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ddp_repro.judge.wording import numbered
from ddp_repro.report.html.telling import cut, in_json
from ddp_repro.report.screen import printable

LONGEST_VALUE = 500


def environment() -> Environment:
    """Return the templates of the package, with the filters that they use."""
    made = Environment(
        loader=PackageLoader("ddp_repro.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    made.filters["numbered"] = lambda numbers, noun: numbered(noun, numbers)
    made.filters["as_value"] = lambda value: cut(in_json(value), LONGEST_VALUE)
    return made


def stylesheet() -> Markup:
    """Return the style of every page."""
    return Markup(template("page.css"))  # noqa: S704  the package's own file


def template(name: str) -> str:
    """Return a file of the templates as it is."""
    return Path(__file__).with_name("templates").joinpath(name).read_text(encoding="utf-8")


def _shown(value: Any) -> Any:
    """Show as an escape whatever in a text could move or hide other text; what is markup already is ours."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value
