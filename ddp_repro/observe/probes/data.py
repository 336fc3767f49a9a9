"""Around the iteration of every ``DataLoader``: the order, the batches, the generators' states.

The classes of loaders and iterators stay; methods of the iterators' base class are watched. An index batch is recorded
with the batch that is delivered for it: workers prefetch, so it was drawn much earlier.
"""

import functools
import json
import weakref
from collections.abc import Callable
from typing import Any, Final

from torch.utils.data import DataLoader

from ddp_repro.observe import seedings, torch_internals
from ddp_repro.observe.content import batch_content, index_facts
from ddp_repro.observe.epoch_guard import EpochGuard
from ddp_repro.observe.probes.worker import Fetched, observed_worker_loop
from ddp_repro.observe.recorder import Recorder, Row, number
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.rng_states import SPEC, DrawnStates, PrivateGenerators, process_states
from ddp_repro.observe.samplers import loader_facts, order_name
from ddp_repro.observe.scene import Backwards, Scene
from ddp_repro.observe.seedings import SEEDS, Fetch, fetching

_ONLY_TASK: Final = -1  # without workers, the index batch drawn last is the one delivered next


def attach(scene: Scene) -> Detach:
    """Watch all loaders that begin a pass from now on."""
    probe = _DataProbe(scene)
    iterator = torch_internals.LOADER_ITERATOR
    restores = [
        seedings.attach(),
        replace_attribute(iterator, "__init__", probe.watched_init),
        replace_attribute(iterator, "_reset", probe.watched_reset),
        replace_attribute(iterator, "_next_index", probe.watched_next_index),
        replace_attribute(iterator, "__next__", probe.watched_next),
        replace_attribute(
            torch_internals.WORKER_LOOP_OWNER, torch_internals.WORKER_LOOP_NAME, lambda _: observed_worker_loop
        ),
    ]

    def detach() -> None:
        probe.active = False
        for restore in reversed(restores):
            restore()
        probe.guard.release()

    return detach


class _Pass:
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
        oldest = next(iter(self.drawn), _ONLY_TASK)
        return oldest, [(f"{self.name}.main.{name}", before[name], after[name]) for name in before if name in after]


def _state(step: int, name: str, digest: bytes) -> Row:
    return (step, "rng", name, SPEC, digest, None)


class _DataProbe:
    def __init__(self, scene: Scene) -> None:
        self.active = True
        self.guard = EpochGuard(scene.epoch_guard)
        self._recorder = scene.recorder
        self._backwards = scene.backwards
        self._passes: weakref.WeakKeyDictionary[Any, _Pass] = weakref.WeakKeyDictionary()
        self._staying: weakref.WeakKeyDictionary[Any, weakref.ref[DataLoader[Any]]] = weakref.WeakKeyDictionary()
        """Iterators with workers from an earlier pass that have not told yet what their copies of the data set keep."""
        self._loaders: weakref.WeakKeyDictionary[DataLoader[Any], list[Any]] = weakref.WeakKeyDictionary()
        self._loaders_met = 0
        self._global = DrawnStates()

    def watched_init(self, init: Callable[..., None]) -> Callable[..., None]:
        """Return ``init``, followed by the beginning of a pass."""

        @functools.wraps(init)
        def watched(iterator: Any, loader: DataLoader[Any]) -> None:
            # The sampler begins within init: the guard comes before it.
            begun = self._begun(loader, None) if self.active and not self._recorder.silent else None
            init(iterator, loader)
            if not self.active:
                return
            if loader.num_workers:
                iterator._process_data = _unwrapping(iterator, self._passes)  # noqa: SLF001 -- the one place that knows a batch and its worker
            if begun is not None:
                self._begin(iterator, loader, begun)

        return watched

    def watched_reset(self, reset: Callable[..., None]) -> Callable[..., None]:
        """Return ``reset``, preceded by the beginning of a pass where an iterator is used again."""

        @functools.wraps(reset)
        def watched(iterator: Any, loader: DataLoader[Any], first_iter: bool = False) -> None:
            if self.active and not self._recorder.silent and not first_iter:
                self._begin(iterator, loader, self._begun(loader, iterator))
            reset(iterator, loader, first_iter)

        return watched

    def watched_next_index(self, next_index: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return ``next_index``, which keeps what was drawn until it is delivered."""

        @functools.wraps(next_index)
        def watched(iterator: Any) -> Any:
            current = self._current(iterator)
            if current is None:
                return next_index(iterator)
            index = next_index(iterator)
            current.look_at_loader()
            if current.indexed:
                task = torch_internals.next_task(iterator)
                current.drawn[_ONLY_TASK if task is None else task] = index
            return index

        return watched

    def watched_next(self, advance: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return ``__next__``, which records what it delivers."""

        @functools.wraps(advance)
        def watched(iterator: Any) -> Any:
            current = self._current(iterator)
            if current is None:
                return advance(iterator)
            before: dict[str, bytes] = {}
            if current.private is not None:
                current.private.look()
                before = current.private.states()
            try:
                with fetching() as fetch:
                    batch = advance(iterator)
            except StopIteration:
                current.begin(self._recorder)
                current.end(self._recorder)
                raise
            self._look_at_workers(iterator, current)
            current.begin(self._recorder)
            current.deliver(self._recorder, batch, before, fetch)
            return batch

        return watched

    def _current(self, iterator: Any) -> _Pass | None:
        return self._passes.get(iterator) if self.active and not self._recorder.silent else None

    def _begun(self, loader: DataLoader[Any], again: Any | None) -> _Pass:
        """Return a new pass over ``loader``; raises ``ReproError`` where the guard stops it."""
        begun = _Pass(loader, self._global, self._backwards)
        begun.told = self.guard.begin(loader, begun, again)
        return begun

    def _look_at_workers(self, iterator: Any, current: _Pass) -> None:
        settings = current.arrived_settings() if iterator in self._staying else None
        loader = self._staying[iterator]() if settings is not None else None
        if settings is not None and loader is not None:
            current.told |= self.guard.arrived(loader, settings)
            del self._staying[iterator]

    def _begin(self, iterator: Any, loader: DataLoader[Any], begun: _Pass) -> None:
        if iterator in self._passes and loader.num_workers:
            self._staying[iterator] = weakref.ref(loader)
        known = self._loaders.get(loader)
        if known is None:
            known = self._loaders[loader] = [f"{order_name(loader)}[{self._loaders_met}]", 0]
            self._loaders_met += 1
        begun.name, begun.number = known
        self._passes[iterator] = begun
        known[1] += 1


def _unwrapping(iterator: Any, passes: weakref.WeakKeyDictionary[Any, _Pass]) -> Callable[[Any, int], Any]:
    """Return the iterator's ``_process_data``, which takes what the worker observed off the batch.

    It stays with the iterator when the observer goes: its workers go on sending. It holds no reference to the iterator,
    whose end, when the last reference goes, ends the workers.
    """
    reference = weakref.ref(iterator)

    def process_data(data: Any, worker: int) -> Any:
        owner = reference()
        assert owner is not None, "called by its own iterator"
        data = type(owner)._process_data(owner, data, worker)  # noqa: SLF001 -- as above
        if type(data) is not Fetched:
            return data
        current = passes.get(owner)
        if current is not None:
            current.fetched = data.facts
        return data.batch

    return process_data
