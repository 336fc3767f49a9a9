"""A measurement on the terminal and on its page: one screen, the verdict last, and nothing that is taken for markup."""

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ddp_repro.judge.cost import Timed, judge_cost
from ddp_repro.judge.seed_reach import cautions_of, problems_of
from ddp_repro.judge.spread import SpreadRules, Trial, judge_spread
from ddp_repro.report.cost_document import CostAsked, cost_document
from ddp_repro.report.html.dots import Given, dots
from ddp_repro.report.html.measured import is_measured, measured_page
from ddp_repro.report.measured import render_measured
from ddp_repro.report.spread_document import Asked, spread_document
from ddp_repro.trace.layout import RunFolder


def of_spread(
    a: list[float], b: list[float], *, metric: str = "acc", baseline: list[float] | None = None
) -> dict[str, Any]:
    trials = [Trial(launch=n, arm="A", seed=n, value=value, end=f"a{n}") for n, value in enumerate(a)]
    trials += [Trial(launch=9 + n, arm="B", seed=n, value=value, end=f"b{n}") for n, value in enumerate(b)]
    rules = SpreadRules(expects_candidate=bool(b), baseline=baseline)
    found = judge_spread(trials, rules, problems_of(trials, rules), cautions_of(trials, rules))
    asked = Asked(
        run=RunFolder(Path("runs/0")), command="spread x", metric=metric, candidate=["a=1"], identity="d" * 64
    )
    return spread_document(found, trials, rules, asked, ["a note"])


def of_cost(problems: list[str]) -> dict[str, Any]:
    arms = [("prod", "prod"), ("debug", "prod"), *((f"switch_{n}_of_a_long_name", "prod") for n in range(8))]
    timed = [
        Timed(
            launch=n * 6 + r,
            arm=arm,
            repeat=r,
            seconds=0.01 + r / 1e3 + n / 1e4,
            steps=50,
            rss_bytes=1 << 28,
            gpu_bytes=1,
        )
        for n, (arm, _) in enumerate(arms)
        for r in range(6)
    ]
    asked = CostAsked(
        run=RunFolder(Path("runs/0")), command="cost x", confidence=0.95, left_out=["cudnn_tf32"], identity=""
    )
    return cost_document(judge_cost(timed, arms, 0.95, problems), timed, asked)


SHOWN = {
    "spread": of_spread([0.1, 0.2, 0.3, 0.25], []),
    "candidate": of_spread([0.1, 0.2, 0.3, 0.25, 0.2, 0.22], [0.5, 0.6, 0.7, 0.65, 0.6, 0.62]),
    "baseline": of_spread([0.3], [], baseline=[0.1, 0.2, 0.3]),
    "constant": of_spread([1.0, 1.0, 1.0], []),
    "one": of_spread([1.0], []),
    "nothing": of_spread([], []),
    "cost": of_cost([]),
    "failed": of_cost(["launch 3 (debug) failed: " + "why " * 200]),
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_report_fits_one_screen_and_ends_with_the_verdict(name: str, width: int) -> None:
    told = io.StringIO()
    render_measured(SHOWN[name], "report.html", Console(file=told, width=width, height=24))
    lines = told.getvalue().splitlines()
    assert lines[-1] == SHOWN[name]["verdict"]
    assert max(map(len, lines)) <= width
    assert len(lines) <= (24 if width >= 80 or name not in ("cost", "failed") else 60)


@pytest.mark.parametrize("name", SHOWN)
def test_a_page_is_made_of_every_result_and_loads_nothing(name: str) -> None:
    page = measured_page(SHOWN[name])
    assert is_measured(SHOWN[name])
    assert SHOWN[name]["verdict"] in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert "nan" not in page.partition("<main>")[2].partition("svg>")[0]


def test_what_a_user_wrote_is_no_markup_and_no_escape() -> None:
    shown = of_spread([0.1, 0.2, 0.3], [], metric="<script>alert(1)</script>\x1b[31m")
    assert "<script>" not in measured_page(shown)
    told = io.StringIO()
    render_measured({**shown, "sentence": "a\x1b[31m[bold]b"}, "", Console(file=told, width=80))
    assert "\x1b" not in told.getvalue()
    assert "[bold]" in told.getvalue()


def test_dots_lie_within_their_picture_also_where_all_are_one_number() -> None:
    made = dots("t", "c", [Given(label="a", values=[5.0, 5.0]), Given(label="b", values=[float("inf")])])
    assert made is not None
    assert [x for x, _ in made.rows[0].dots] == ["500.0", "500.0"]
    assert made.rows[1].dots == []
    assert dots("t", "c", [Given(label="a")]) is None
    zero = dots("t", "c", [Given(label="a", values=[0.0], interval=(-1.0, 2.0))], at=0.0)
    assert zero is not None
    assert zero.at == zero.rows[0].dots[0][0]
