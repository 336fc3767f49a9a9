"""Label columns (phase, name, spec) as a growing dictionary and the codes into it."""

from collections.abc import Collection
from typing import Final

import pyarrow as pa

_REMEMBERED: Final = 8


class LabelColumn:
    """Encodes lists of labels; codes number the labels by first appearance and never change.

    Training repeats itself: most batches bring the same labels in the same order, so the last few encoded columns are
    kept (by length) and handed out again.
    """

    def __init__(self, dictionary_type: pa.DictionaryType, allowed: Collection[str] | None = None) -> None:
        self._type = dictionary_type
        self._allowed = allowed
        self._codes: dict[str, int] = {}
        self._labels = pa.array([], pa.string())
        self._recent: dict[int, tuple[list[str], pa.DictionaryArray]] = {}

    def encode(self, labels: list[str]) -> pa.DictionaryArray:
        """Return ``labels`` (n strings, not changed afterwards) as a dictionary array of n rows."""
        recent = self._recent.get(len(labels))
        if recent is not None and recent[0] == labels:
            return recent[1]
        self._learn(labels)
        codes = pa.array([self._codes[label] for label in labels], self._type.index_type)
        encoded = pa.DictionaryArray.from_arrays(codes, self._labels)
        if len(self._recent) >= _REMEMBERED:
            self._recent.clear()
        self._recent[len(labels)] = (labels, encoded)
        return encoded

    def _learn(self, labels: list[str]) -> None:
        known = len(self._codes)
        for label in labels:
            if label not in self._codes:
                assert self._allowed is None or label in self._allowed, f"{label!r} is not among {self._allowed}"
                self._codes[label] = len(self._codes)
        if len(self._codes) == known:
            return
        self._labels = pa.array([_storable(label) for label in self._codes], pa.string())
        # Remembered columns refer to the shorter dictionary: writing one would make Arrow store it anew.
        self._recent.clear()


def _storable(label: str) -> str:
    """Return ``label`` without lone surrogates (a file name that is not UTF-8 has them), which Arrow refuses."""
    return label.encode("utf-8", "backslashreplace").decode()
