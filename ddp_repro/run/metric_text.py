"""The numbers that a pattern finds in what a rank printed: whole numbers, and none passed over."""

import re
from dataclasses import dataclass
from typing import Final

from ddp_repro.errors import ReproError

_NUMBER: Final = re.compile(
    r"[-+]?(?:nan|inf(?:inity)?|(?:\d+(?:[,_]\d{3}(?!\d))*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?)(?!\w)", re.IGNORECASE
)
"""A number as people print it, with ``nan``, infinities, exponents and separators of thousands."""
_DECIMAL_COMMA: Final = re.compile(r"([-+]?\d+),(?!\d{3}(?!\d))\d+")
"""A whole number that may be the beginning of another one: ``0,75``; three digits are thousands."""
_NUMBER_NEXT: Final = re.compile(rf"[ \t]*({_NUMBER.pattern})", _NUMBER.flags)
_HINT: Final = "Have the group take all of it, whatever it is: (\\S+) up to the next space, or ([^ ,]+)."
_LINE: Final = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The first group of a match, where it stands in the text, and where the match ends."""

    text: str
    start: int
    end: int
    match_end: int


def found_in(pattern: "re.Pattern[str]", text: str) -> list[Found]:
    """Return the first group that took part in each match."""
    return [_group(match) for match in pattern.finditer(text)]


def refuse_parts(pattern: "re.Pattern[str]", text: str, found: Found) -> None:
    """Raise ReproError where a group holds a part of a number only: ``1.5`` of ``1.5e-06``, ``5`` of ``0.75``.

    ``0`` of ``0,75`` is one as well, unless the pattern says itself that a comma follows.
    """
    start = found.start + len(found.text) - len(found.text.lstrip())
    whole = next((one for one in _NUMBER.finditer(text, *_line(text, start)) if one.start() <= start < one.end()), None)
    comma = _DECIMAL_COMMA.match(text, start)
    if comma is not None and found.end == found.match_end == comma.end(1):
        raise ReproError(
            f"metric.regex={pattern.pattern} takes {found.text!r} of {comma[0]!r} in {_told(text, start)!r}.",
            hint="Numbers have a decimal point. Where the comma parts two numbers, have the pattern go on with it.",
        )
    if whole is None or (whole.start() >= start and whole.end() <= found.end):
        return
    raise ReproError(
        f"metric.regex={pattern.pattern} takes {found.text!r} of {whole[0]!r} in {_told(text, start)!r}.", hint=_HINT
    )


def refuse_passed_over(pattern: "re.Pattern[str]", text: str, found: list[Found], *, only_last: bool) -> None:
    """Raise ReproError where what precedes the group is followed by a number that the pattern does not match.

    That is how ``loss=nan`` or ``loss=-1`` goes unseen by ``loss=([0-9.]+)``. With ``only_last`` what precedes the last
    match does not count. A pattern that begins with its group, or can match without it, is not looked at.
    """
    before = _beginning(pattern)
    if before is None:
        return
    since = found[-1].end if only_last and found else 0
    known = {one.start for one in found}
    for match in before.finditer(text):
        number = _NUMBER_NEXT.match(text, match.end())
        if number is None:
            continue
        start = number.start(1)
        if start >= since and not {match.end(), start} & known:
            raise ReproError(
                f"metric.regex={pattern.pattern} passes over {number[1]!r} in {_told(text, start)!r}.", hint=_HINT
            )


def _group(match: "re.Match[str]") -> Found:
    number = next((at for at, group in enumerate(match.groups(), start=1) if group is not None), 0)
    if not number:
        return Found(text="", start=match.start(), end=match.start(), match_end=match.end())
    return Found(text=match[number], start=match.start(number), end=match.end(number), match_end=match.end())


def _beginning(pattern: "re.Pattern[str]") -> "re.Pattern[str] | None":
    """Return the pattern up to its first group, where that is a pattern of its own."""
    source = pattern.pattern
    at = next((one.start(1) for one in _GROUPS.finditer(source) if one[1]), 0)
    if not source[:at].strip("^") or _has_branches(source[:at]):
        return None
    try:
        return re.compile(source[:at], pattern.flags)
    except re.error:
        return None


def _has_branches(source: str) -> bool:
    """Tell whether a ``|`` parts the pattern itself, and not a group in it."""
    depth = 0
    for sign in _SIGNS.finditer(source):
        depth += {"(": 1, ")": -1}.get(sign[1] or "", 0)
        if sign[1] == "|" and depth == 0:
            return True
    return False


_LITERAL: Final = r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]"
"""What in a pattern opens no group and parts nothing: an escaped sign, a set of signs."""
_SIGNS: Final = re.compile(rf"{_LITERAL}|([()|])", re.DOTALL)
"""As its first group a bracket, or what parts alternatives."""
_GROUPS: Final = re.compile(rf"{_LITERAL}|(\((?:\?P<|(?!\?)))", re.DOTALL)
"""As its first group the opening of a group that captures."""


def _line(text: str, at: int) -> tuple[int, int]:
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


def _told(text: str, at: int) -> str:
    begin, end = _line(text, at)
    return text[max(begin, at - _LINE // 2) : min(end, at + _LINE // 2)]
