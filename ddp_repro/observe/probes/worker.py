"""Runs inside a loader's worker: keeps the generators' states around each batch and sends them along with it.

The loop that torch runs is left as it is; the queues it reads its tasks from and puts its batches into are what is
watched. So every batch, error and end goes through torch's own code, in a forked and in a spawned worker alike.
"""

import json
from typing import Any, Final, NamedTuple

from ddp_repro.observe import seedings
from ddp_repro.observe.epoch_guard import SetEpoch
from ddp_repro.observe.epoch_settings import Settings, integers_of
from ddp_repro.observe.rng_states import PrivateGenerators, process_states
from ddp_repro.observe.samplers import epoch_datasets
from ddp_repro.observe.torch_internals import WORKER_LOOP, carries_data

_DATASET, _TASKS, _RESULTS = 1, 2, 3  # places among the arguments of the worker loop
_WORKER_ID: Final = 10


class Fetched(NamedTuple):
    """A batch with what was observed where it was fetched; a named tuple, so that pinning memory goes through it."""

    batch: Any
    facts: bytes
    """JSON: ``{"task": number, "worker": number, "states": [[name, before, after], …]}``, digests as hexadecimal.

    Where a global generator was seeded for it, also ``seeded``: ``[[name, digest over the seeds, how often], …]``. With
    the first batch of a further pass also ``settings``: the integers that each data set with ``set_epoch`` keeps.
    """


def observed_worker_loop(*arguments: Any) -> None:
    """Run torch's worker loop (same arguments) with its queues watched."""
    seedings.attach()
    watch = _WorkerWatch(arguments[_DATASET], worker=arguments[_WORKER_ID])
    replaced = list(arguments)
    replaced[_TASKS] = _Tasks(arguments[_TASKS], watch)
    replaced[_RESULTS] = _Results(arguments[_RESULTS], watch)
    WORKER_LOOP(*replaced)


class _WorkerWatch:
    def __init__(self, dataset: Any, *, worker: int) -> None:
        self._worker = worker
        self._private = PrivateGenerators(dataset)
        self._before: dict[str, bytes] = {}
        self._datasets = epoch_datasets(dataset)
        self._settings: list[Settings] = []
        self._tells_settings = False
        self._fetch = seedings.Fetch()

    def begin(self) -> None:
        """Look at the states before a batch is fetched."""
        self._private.look()
        self._before = self._states()
        self._fetch = seedings.begin_fetch()

    def facts(self, task: int) -> bytes:
        """Look at the states after a batch was fetched, and return the facts about it."""
        seedings.end_fetch(self._fetch)
        states = [(name, self._before.get(name), after) for name, after in self._states().items()]
        rows = [[name, before.hex(), after.hex()] for name, before, after in states if before is not None]
        facts: dict[str, Any] = {"task": task, "worker": self._worker, "states": rows}
        seeded = [[name, digest.hex(), count] for name, digest, count in self._fetch.told()]
        if seeded:
            facts["seeded"] = seeded
        if self._tells_settings:
            self._tells_settings = False
            facts["settings"] = self._settings
        return json.dumps(facts).encode()

    def new_pass(self) -> None:
        """Take note that a worker that stays goes on with a new pass."""
        self._private.new_pass()
        self._tells_settings = bool(self._datasets)
        self._settings = [integers_of(thing) for thing in self._datasets]

    def obey(self, word: SetEpoch) -> None:
        """Set the epoch of this worker's copy of a data set."""
        if word.place < len(self._datasets):
            self._datasets[word.place].set_epoch(*word.arguments)

    def _states(self) -> dict[str, bytes]:
        return {**dict(process_states()), **self._private.states()}


class _Tasks:
    """The queue of index batches, as the worker loop uses it."""

    def __init__(self, queue: Any, watch: _WorkerWatch) -> None:
        self._queue = queue
        self._watch = watch

    def get(self, *args: Any, **kwargs: Any) -> Any:
        task = self._queue.get(*args, **kwargs)
        while isinstance(task, SetEpoch):
            self._watch.obey(task)
            task = self._queue.get(*args, **kwargs)
        if isinstance(task, tuple):
            self._watch.begin()
        elif task is not None:
            self._watch.new_pass()
        return task

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


class _Results:
    """The queue of fetched batches, as the worker loop uses it."""

    def __init__(self, queue: Any, watch: _WorkerWatch) -> None:
        self._queue = queue
        self._watch = watch

    def put(self, item: Any, *args: Any, **kwargs: Any) -> None:
        task, data = item
        if isinstance(task, int) and carries_data(data):
            item = (task, Fetched(data, self._watch.facts(task)))
        self._queue.put(item, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)
