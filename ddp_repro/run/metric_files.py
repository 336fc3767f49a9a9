"""Metrics that a script writes to files of its own: lines of JSON, and TensorBoard's scalars.

Several launches may write to one file or folder: what was there before a launch is none of its values.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import xxhash

from ddp_repro.errors import ReproError
from ddp_repro.run.trials import Trial

_KEYS_TOLD: Final = 12
_EVENTS: Final = "**/*tfevents*"


class AppendedLines:
    """The numbers under a key in the lines that a launch wrote or appended to a file."""

    def __init__(self, path: str, key: str) -> None:
        self._path, self._key = path, key
        self._digest = b""
        self._size = 0
        self.title = f"{key} in {path}"

    def begin(self, trial: Trial) -> None:
        """Take note of what the file holds."""
        content = self._content(trial)
        self._size, self._digest = len(content), xxhash.xxh3_128_digest(content)

    def values(self, trial: Trial) -> list[float]:
        """Return the numbers in the order of the lines."""
        content = self._content(trial)
        grew = len(content) >= self._size and xxhash.xxh3_128_digest(content[: self._size]) == self._digest
        told = list(_objects(content[self._size :] if grew else content, self._key))
        found = [value for one in told if (value := _number(one, self._key)) is not None]
        if found:
            return found
        where = f"{trial.fill(self._path)} after launch {trial.launch} (seed {trial.seed})"
        if not told:
            raise ReproError(
                f"metric.jsonl: there is no new line of JSON in {where}.",
                hint="Does the script write there? {out} stands for the launch's folder in workload.args as well.",
            )
        keys = ", ".join(sorted({key for one in told for key in one})[:_KEYS_TOLD])
        raise ReproError(f"metric.key={self._key}: no number has that key in {where}.", hint=f"Its keys are: {keys}.")

    def _content(self, trial: Trial) -> bytes:
        path = Path(trial.fill(self._path))
        try:
            return path.read_bytes() if path.exists() else b""
        except OSError as error:
            raise ReproError(f"metric.jsonl: {path} cannot be read: {error.strerror}.", hint="Name a file.") from error


def _objects(content: bytes, key: str) -> Iterator[dict[str, Any]]:
    """Yield the objects among the lines; a line that is none is passed over, unless it holds the key.

    A number of JSON is never ``nan``, which scripts print all the same, and a line that was cut holds a number that
    nobody can know: both are NaN.
    """
    named = json.dumps(key.rpartition(".")[2], ensure_ascii=False).encode()
    for line in content.splitlines():
        try:
            one = json.loads(line)
        except ValueError:
            one = {key: math.nan} if named in line else None
        if isinstance(one, dict):
            yield one


def _number(one: dict[str, Any], key: str) -> float | None:
    """Return the number under ``key``, or under its parts one in the other; ``None`` where nothing has that key.

    What is there and is no number is NaN, as which some write ``null`` and some a word. An object is no value.
    """
    value: Any = one
    for part in [key] if key in one else key.split("."):
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    if isinstance(value, dict):
        return None
    try:
        return math.nan if value is None or isinstance(value, (bool, list)) else float(value)
    except ValueError:
        return math.nan


class Scalars:
    """The scalars under a tag in the event files that a launch wrote in a folder, by TensorBoard's own reader."""

    def __init__(self, folder: str, tag: str) -> None:
        self._folder, self._tag = folder, tag
        self._before: dict[Path, int] = {}
        self.title = f"{tag} in TensorBoard's {folder}"

    def begin(self, trial: Trial) -> None:
        """Take note of the event files that are there; raise ReproError where TensorBoard is not installed."""
        _reader()
        self._before = self._files(trial)

    def values(self, trial: Trial) -> list[float]:
        """Return the scalars in the order of their steps."""
        where = f"{trial.fill(self._folder)} after launch {trial.launch} (seed {trial.seed})"
        new = [path for path, size in self._files(trial).items() if self._before.get(path) != size]
        if not new:
            raise ReproError(
                f"metric.tensorboard: there is no new event file in {where}.",
                hint="Does the script write there? {out} stands for the launch's folder in workload.args as well.",
            )
        tags: set[str] = set()
        found: list[tuple[int, float]] = []
        for path in sorted(new):
            found += self._read(path, tags)
        if not found:
            known = ", ".join(sorted(tags)[:_KEYS_TOLD]) or "none"
            raise ReproError(
                f"metric.tag={self._tag}: there is no such scalar in {where}.", hint=f"Its tags are: {known}."
            )
        return [value for _, value in sorted(found, key=lambda pair: pair[0])]

    def _files(self, trial: Trial) -> dict[Path, int]:
        folder = Path(trial.fill(self._folder))
        return {path: path.stat().st_size for path in folder.glob(_EVENTS)} if folder.is_dir() else {}

    def _read(self, path: Path, tags: set[str]) -> list[tuple[int, float]]:
        from tensorboard.util import tensor_util  # noqa: PLC0415  an optional library

        events = _reader()(str(path), size_guidance={"scalars": 0, "tensors": 0})
        events.Reload()
        known = events.Tags()
        tags.update(known["scalars"], known["tensors"])
        if self._tag in known["scalars"]:
            return [(event.step, float(event.value)) for event in events.Scalars(self._tag)]
        if self._tag in known["tensors"]:
            made = [(event.step, tensor_util.make_ndarray(event.tensor_proto)) for event in events.Tensors(self._tag)]
            return [(step, float(value)) for step, value in made if value.size == 1]
        return []


def _reader() -> Any:
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: PLC0415  optional
    except ImportError as error:
        raise ReproError(
            "metric.tensorboard needs TensorBoard, which is not installed here.", hint="pip install tensorboard"
        ) from error
    return EventAccumulator
