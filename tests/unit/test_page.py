"""The picture beside a verdict never costs the verdict."""

from pathlib import Path
from typing import NoReturn

import pytest

from ddp_repro.config import PageConfig
from ddp_repro.errors import ReproError
from ddp_repro.page import page_told
from ddp_repro.trace.layout import RunFolder

RUN = RunFolder(Path("runs/0"))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ReproError("the disk is full"), "no report.html (the disk is full)"),
        (KeyError("classes"), "no report.html (KeyError: 'classes')"),
        (ZeroDivisionError(), "no report.html (ZeroDivisionError)"),
    ],
)
def test_why_there_is_no_page_is_told(error: Exception, told: str) -> None:
    def write() -> NoReturn:
        raise error

    assert page_told(RUN, PageConfig(), write) == told
    assert page_told(RUN, PageConfig(html=False), write) == ""


def test_a_page_that_is_written_is_named() -> None:
    written: list[str] = []
    assert page_told(RUN, PageConfig(), lambda: written.append("page")) == "report.html"
    assert written == ["page"]
