"""One pass over one loader, on its way: what is told of it, and of each batch that it delivers."""

import json
from typing import Any, Final

from torch.utils.data import DataLoader

from ddp_repro.observe import torch_internals
from ddp_repro.observe.content import batch_content, index_facts
from ddp_repro.observe.recorder import Recorder, Row, number
from ddp_repro.observe.rng_states import SPEC, DrawnStates, PrivateGenerators, process_states
from ddp_repro.observe.samplers import loader_facts
from ddp_repro.observe.scene import Backwards
from ddp_repro.observe.seedings import SEEDS, Fetch

ONLY_TASK: Final = -1
"""The task of all index batches of a loader without workers: the one drawn last is the one delivered next."""


class LoaderPass:
    """One pass over one loader, on its way."""

    def __init__(self, loader: DataLoader[Any], drawn: DrawnStates, backwards: Backwards) -> None:
        self.name = ""
        self.number = 0
        self.trained = False
        self.told: dict[str, int] = {}
        """What the guard of epochs says of this pass."""
        self.indexed = torch_internals.draws_indices(loader)
        self.facts: dict[str, int] = {}
        self.drawn: dict[int, Any] = {}
        """Index batches that were drawn and not delivered yet, by the number of their task."""
        self.fetched: bytes | None = None
        """What the worker observed of the batch delivered last."""
        self.private = PrivateGenerators(loader.dataset) if loader.num_workers == 0 else None
        self._loader: DataLoader[Any] | None = loader
        self._backwards = backwards
        self._backwards_before: int | None = None
        self._global = drawn
        self._begun = False
        self._ended = False
        self._delivered = 0

    def look_at_loader(self) -> None:
        """Read the loader's facts, once its sampler has begun the pass (some count epochs as they begin one)."""
        if self._loader is not None:
            self.facts = loader_facts(self._loader)
            self._loader = None  # one with persistent workers holds the iterator whose pass this is

    def look_at_training(self) -> None:
        """Take note of whether a backward ran between two batches, or before the end."""
        if self._backwards_before is None:
            self._backwards_before = self._backwards.count
        self.trained = self.trained or self._backwards.count > self._backwards_before

    def arrived_settings(self) -> list[dict[str, int]] | None:
        """Return what the data sets of the worker keep, where the batch that has arrived tells it."""
        found: list[dict[str, int]] | None = json.loads(self.fetched).get("settings") if self.fetched else None
        return found

    def begin(self, recorder: Recorder) -> None:
        """Record the facts of the pass, before its first batch."""
        if self._begun:
            return
        self._begun = True
        self.look_at_loader()
        for fact, value in {"pass": self.number, **self.facts, **self.told}.items():
            recorder.add_fact("data", f"{self.name}.{fact}", number(value))

    def end(self, recorder: Recorder) -> None:
        """Record that the loader was exhausted, once."""
        self.look_at_training()
        if not self._ended:
            self._ended = True
            recorder.add_fact("data", f"{self.name}.end", number(self._delivered))

    def deliver(self, recorder: Recorder, batch: Any, before: dict[str, bytes], fetch: Fetch) -> None:
        """Record one delivered batch: indices, states that it was made from, content, states that it left, seeds."""
        self._delivered += 1
        self.look_at_training()
        seeded = self._seeded(fetch)
        task, states = self._states(before, fetch)
        step = recorder.step
        rows: list[Row] = [(step, "data", f"{self.name}.index", *fact) for fact in self._indices(task)]
        rows.extend(_state(step, f"{name}.before", digest) for name, digest, _ in states)
        rows.extend(_state(step, name, digest) for name, digest in self._global.states())
        rows.extend((step, "data", name, *fact) for name, fact in batch_content(batch, f"{self.name}.batch"))
        rows.extend(_state(step, f"{name}.after", digest) for name, _, digest in states)
        rows.extend((step, "rng", f"{name}.seeded", SEEDS, digest, float(count)) for name, digest, count in seeded)
        recorder.add_rows(rows)

    def _indices(self, task: int) -> list[tuple[str, bytes, float | list[float] | None]]:
        return index_facts(self.drawn.pop(task)) if self.indexed and task in self.drawn else []

    def _seeded(self, fetch: Fetch) -> list[tuple[str, bytes, int]]:
        """Return each generator that was seeded for the batch, the digest over the seeds, and how often it was."""
        if self.fetched is None:
            return [(f"{self.name}.main.{name}", digest, count) for name, digest, count in fetch.told()]
        facts = json.loads(self.fetched)
        prefix = f"{self.name}.worker{facts['worker']}"
        return [(f"{prefix}.{name}", bytes.fromhex(x), count) for name, x, count in facts.get("seeded", ())]

    def _states(self, before: dict[str, bytes], fetch: Fetch) -> tuple[int, list[tuple[str, bytes, bytes]]]:
        """Return the number of the batch's task, and name, state before and state after of each generator."""
        if self.fetched is not None:
            facts, self.fetched = json.loads(self.fetched), None
            prefix = f"{self.name}.worker{facts['worker']}"
            states = [(f"{prefix}.{name}", bytes.fromhex(x), bytes.fromhex(y)) for name, x, y in facts["states"]]
            return facts["task"], states
        after = self.private.states() if self.private is not None else {}
        if fetch.before:  # global ones tell their states around a batch where they were seeded for it
            before, after = before | fetch.before, after | dict(process_states())
        # Workers that were there before the observer tell nothing; their batches come in the order they were drawn in.
        oldest = next(iter(self.drawn), ONLY_TASK)
        return oldest, [(f"{self.name}.main.{name}", before[name], after[name]) for name in before if name in after]


def _state(step: int, name: str, digest: bytes) -> Row:
    return (step, "rng", name, SPEC, digest, None)
