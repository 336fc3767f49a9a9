"""Lays a report out for one screen: labelled paragraphs, wrapped, and cut where there are too many."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LABEL_WIDTH: Final = 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A labelled piece of a report; ``at_most`` bounds its lines, ``style`` is a name of a terminal style."""

    label: str
    text: str
    style: str = ""
    at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of a report."""

    label: str
    text: str
    style: str = ""


def laid_out(paragraphs: Sequence[Paragraph], width: int) -> list[Line]:
    """Return the lines of the paragraphs, at most ``width`` columns wide."""
    return [line for paragraph in paragraphs for line in _lines(paragraph, width)]


def fitted(fixed: Sequence[Paragraph], lists: Sequence[Sequence[Paragraph]], width: int, height: int) -> list[Line]:
    """Return ``fixed``, then as much of each list as fits ``height`` lines, saying of each how much was cut.

    What is fixed is never cut. A list's paragraphs are shown whole or not at all.
    """
    lines = laid_out(fixed, width)
    for place, paragraphs in enumerate(lists):
        reserved = sum(1 for later in lists[place + 1 :] if later)
        lines += _shown(paragraphs, width, height - len(lines) - reserved)
    return lines


def _shown(paragraphs: Sequence[Paragraph], width: int, room: int) -> list[Line]:
    wrapped = [_lines(paragraph, width) for paragraph in paragraphs]
    if not wrapped:
        return []
    if sum(map(len, wrapped)) <= room:
        return [line for lines in wrapped for line in lines]
    shown: list[Line] = []
    count = 0
    for lines in wrapped:
        if len(shown) + len(lines) > room - 1:
            break
        shown += lines
        count += 1
    label = "" if count else paragraphs[0].label
    left = len(paragraphs) - count
    return [*shown, Line(label=label, text=f"{left:,} {'more ' if count else ''}not shown here: see verdict.json")]


def _lines(paragraph: Paragraph, width: int) -> list[Line]:
    room = max(width - LABEL_WIDTH, 20)
    texts = textwrap.wrap(printable(paragraph.text), room, break_on_hyphens=False) or [""]
    if paragraph.at_most is not None and len(texts) > paragraph.at_most:
        texts = texts[: paragraph.at_most]
        texts[-1] = texts[-1][: room - 19] + " … (verdict.json)"
    labels = [paragraph.label, *[""] * (len(texts) - 1)]
    return [Line(label=label, text=text, style=paragraph.style) for label, text in zip(labels, texts, strict=True)]


def printable(text: str) -> str:
    """Return ``text`` with whatever could move a cursor or break a line shown as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
