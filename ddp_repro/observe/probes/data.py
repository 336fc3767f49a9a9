"""Around the iteration of every ``DataLoader``: the order, the batches, the generators' states.

The classes of loaders and iterators stay; methods of the iterators' base class are watched. An index batch is recorded
with the batch that is delivered for it: workers prefetch, so it was drawn much earlier.
"""

import functools
import weakref
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from ddp_repro.observe import seedings, torch_internals
from ddp_repro.observe.epoch_guard import EpochGuard
from ddp_repro.observe.probes.loader_pass import ONLY_TASK, LoaderPass
from ddp_repro.observe.probes.worker import Fetched, observed_worker_loop
from ddp_repro.observe.replacement import Detach, replace_attribute
from ddp_repro.observe.rng_states import DrawnStates
from ddp_repro.observe.samplers import order_name
from ddp_repro.observe.scene import Scene
from ddp_repro.observe.seedings import fetching


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


class _DataProbe:
    def __init__(self, scene: Scene) -> None:
        self.active = True
        self.guard = EpochGuard(scene.epoch_guard)
        self._recorder = scene.recorder
        self._backwards = scene.backwards
        self._passes: weakref.WeakKeyDictionary[Any, LoaderPass] = weakref.WeakKeyDictionary()
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
                current.drawn[ONLY_TASK if task is None else task] = index
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

    def _current(self, iterator: Any) -> LoaderPass | None:
        return self._passes.get(iterator) if self.active and not self._recorder.silent else None

    def _begun(self, loader: DataLoader[Any], again: Any | None) -> LoaderPass:
        """Return a new pass over ``loader``; raises ``ReproError`` where the guard stops it."""
        begun = LoaderPass(loader, self._global, self._backwards)
        begun.told = self.guard.begin(loader, begun, again)
        return begun

    def _look_at_workers(self, iterator: Any, current: LoaderPass) -> None:
        settings = current.arrived_settings() if iterator in self._staying else None
        loader = self._staying[iterator]() if settings is not None else None
        if settings is not None and loader is not None:
            current.told |= self.guard.arrived(loader, settings)
            del self._staying[iterator]

    def _begin(self, iterator: Any, loader: DataLoader[Any], begun: LoaderPass) -> None:
        if iterator in self._passes and loader.num_workers:
            self._staying[iterator] = weakref.ref(loader)
        known = self._loaders.get(loader)
        if known is None:
            known = self._loaders[loader] = [f"{order_name(loader)}[{self._loaders_met}]", 0]
            self._loaders_met += 1
        begun.name, begun.number = known
        self._passes[iterator] = begun
        known[1] += 1


def _unwrapping(iterator: Any, passes: weakref.WeakKeyDictionary[Any, LoaderPass]) -> Callable[[Any, int], Any]:
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
