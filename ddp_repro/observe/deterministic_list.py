"""What torch itself says of an operator's deterministic form: the two lists in the words of its own documentation."""

import functools
import re
from dataclasses import dataclass
from typing import Final

import torch

_LISTS: Final = (
    ("will act deterministically", r"will act\s+deterministically when ``mode=True``"),
    ("has no deterministic form and raises an error", r"will throw a\s+:class:`RuntimeError` when ``mode=True``"),
)
_ITEM: Final = re.compile(r"^ {8}\* (.+(?:\n {10,}(?![-*]).+)*)", re.MULTILINE)
_NAME: Final = re.compile(r":(?:func|class):`([\w.]+)`")
_SUFFIX: Final = re.compile(r"(_forward|_backward|_backward_data|_cuda|_dense_backward)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry: the name of what it is about, all of its words, and what ``use_deterministic_algorithms`` does."""

    name: str
    words: str
    effect: str

    @property
    def has_form(self) -> bool:
        """Whether the operator has a deterministic form."""
        return self.effect == _LISTS[0][0]

    @property
    def sentence(self) -> str:
        """What torch says, with what comes of it."""
        return f"{self.words}: {self.effect}"


def entries() -> list[Entry]:
    """Return the entries of the documentation that this torch comes with; none where it has none, or another form."""
    text = torch.use_deterministic_algorithms.__doc__ or ""
    found = []
    starts = [(match.end(), effect) for effect, head in _LISTS if (match := re.search(head, text))]
    ends = [start for start, _ in starts[1:]] + [len(text)]
    for (start, effect), end in zip(starts, ends, strict=True):
        for item in _ITEM.findall(text[start:end]):
            name = _NAME.search(item)
            if name is not None:
                words = re.sub(r":\w+:|``|`", "", " ".join(item.split()))
                found.append(Entry(name=name[1].rpartition(".")[2], words=words, effect=effect))
    return found


@functools.lru_cache(maxsize=1024)
def _said(base: str) -> tuple[Entry, ...]:
    wanted = _plain(_SUFFIX.sub("", base))
    return tuple(entry for entry in entries() if _plain(entry.name) == wanted)


def entries_of(operator: str) -> list[Entry]:
    """Return the entries on ``aten::index_put``."""
    return list(_said(operator.partition("::")[2].partition(".")[0]))


def said_of(operator: str) -> list[str]:
    """Return what torch says of ``aten::index_put`` under its deterministic algorithms, a sentence an entry."""
    return [entry.sentence for entry in entries_of(operator)]


def _plain(name: str) -> str:
    return name.strip("_").replace("_", "").lower()
