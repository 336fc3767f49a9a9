"""What a loader says about the order in which it visits samples."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler
from torch.utils.data.sampler import SubsetRandomSampler, WeightedRandomSampler

from ddp_repro.observe.torch_internals import draws_indices, index_sampler

_DEPTH: Final = 8
_INNER: Final = ("batch_sampler", "sampler")
_SHUFFLING: Final = (RandomSampler, SubsetRandomSampler, WeightedRandomSampler)
_REPLICAS: Final = (("num_replicas", "rank"), ("num_processes", "process_index"), ("num_shards", "shard_id"))


def order_name(loader: DataLoader[Any]) -> str:
    """Return the class of what decides the order: the innermost sampler, or the data set where there are no indices."""
    if not draws_indices(loader):
        return type(loader.dataset).__name__
    chain = list(_chain(index_sampler(loader)))
    telling = [sampler for sampler in chain if type(sampler) is not BatchSampler]
    return type((telling or chain)[-1]).__name__


def loader_facts(loader: DataLoader[Any]) -> dict[str, int]:
    """Return ``length``, ``shuffle``, ``drop_last``, ``num_replicas``, ``sampler_rank``, ``epoch`` and ``num_workers``.

    ``passed_over``: how many samples of this rank a sampler that goes on in mid-epoch leaves out. Looked for in the
    index sampler and the samplers within it, the outer ones first; what is not known is left out.
    """
    chain: list[object] = list(_chain(index_sampler(loader))) if draws_indices(loader) else [loader.dataset]
    facts = {
        "length": _length(loader.dataset),
        "shuffle": _shuffle(chain),
        "drop_last": any(getattr(thing, "drop_last", False) is True for thing in [loader, *chain]),
        "epoch": _first_integer(chain, "epoch"),
        "num_workers": loader.num_workers,
        "passed_over": _first_integer(chain, "passed_over") or None,
        **_replicas(chain),
    }
    return {name: int(value) for name, value in facts.items() if value is not None}


def epoch_samplers(loader: DataLoader[Any]) -> list[Any]:
    """Return the samplers of a loader that shuffle and have ``set_epoch``, the outermost first.

    What keeps no epoch itself hands it on to what it wraps, and is left out, unless nothing else takes one.
    """
    samplers: list[object] = list(_chain(index_sampler(loader))) if draws_indices(loader) else []
    return [] if _shuffle(samplers) is False else _keepers(samplers)


def epoch_datasets(dataset: Any) -> list[Any]:
    """Return in the same way a data set and those that it wraps: workers hold copies of them."""
    datasets = []
    for _ in range(_DEPTH):
        datasets.append(dataset)
        dataset = getattr(dataset, "__dict__", {}).get("dataset")
    return _keepers(datasets)


def _keepers(things: list[Any]) -> list[Any]:
    takers = [thing for thing in things if callable(getattr(type(thing), "set_epoch", None))]
    takers = [thing for thing in takers if getattr(thing, "shuffle", None) is not False]
    keepers = [thing for thing in takers if any("epoch" in name for name in getattr(thing, "__dict__", {}))]
    return keepers or takers


def _chain(sampler: object) -> Iterator[object]:
    """Yield a sampler and those that it wraps, the outermost first."""
    for _ in range(_DEPTH):
        yield sampler
        inner = next((vars(sampler)[name] for name in _INNER if name in getattr(sampler, "__dict__", {})), None)
        if inner is None or isinstance(inner, (int, str)):
            return
        sampler = inner


def _length(dataset: Any) -> int | None:
    with suppress(Exception):  # whatever a data set's own __len__ raises: then the length is not known
        return len(dataset)
    return None


def _shuffle(chain: list[object]) -> bool | None:
    for sampler in reversed(chain):
        if isinstance(getattr(sampler, "shuffle", None), bool):
            return bool(sampler.shuffle)  # type: ignore[attr-defined]
        if isinstance(sampler, (*_SHUFFLING, SequentialSampler)):
            return isinstance(sampler, _SHUFFLING)
    return None


def _first_integer(chain: list[object], name: str) -> int | None:
    values = (getattr(sampler, name, None) for sampler in chain)
    return next((value for value in values if isinstance(value, int) and not isinstance(value, bool)), None)


def _replicas(chain: list[object]) -> dict[str, int]:
    for count_name, rank_name in _REPLICAS:
        count, rank = _first_integer(chain, count_name), _first_integer(chain, rank_name)
        if count is not None and rank is not None:
            return {"num_replicas": count, "sampler_rank": rank}
    return {}
