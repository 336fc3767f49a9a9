"""Every private name of torch that is relied on, in one place: a new torch version breaks here, with a message.

The observer stays outside the training code, so it has to meet torch where torch itself passes: at the engine's entry,
in the iterators of a loader, in the loop of a loader's worker, in DDP's state. Looked at on torch 2.13.
"""

# ruff: noqa: SLF001 -- gathering the private names of torch is what this module is for

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
import torch.autograd
from torch.nn.parallel import DistributedDataParallel
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass
from torch.utils.data import DataLoader, _utils
from torch.utils.data import dataloader as _dataloader

from ddp_repro.errors import ReproError

BACKWARD_OWNER: Final = torch.autograd
BACKWARD_NAME: Final = "_engine_run_backward"
"""Where ``torch.autograd.backward`` and ``grad`` enter the engine: both look it up as a global of their module."""

LOADER_ITERATOR: Final[Any] = _dataloader._BaseDataLoaderIter
"""Base class of the iterators that a ``DataLoader`` hands out."""

WORKER_LOOP_OWNER: Final[Any] = _utils.worker
WORKER_LOOP_NAME: Final = "_worker_loop"
WORKER_LOOP: Final[Callable[..., None]] = _utils.worker._worker_loop
"""What a loader's worker process runs; looked up as a global when the worker is started."""

WORKER_ARGUMENTS: Final = ("dataset_kind", "dataset", "index_queue", "data_queue")
"""The first arguments of the worker loop, in order: those that are replaced."""

INSIDE_FORWARD: Final = "_inside_ddp_forward"
"""The context in which DDP calls the wrapped module, after it broadcast its buffers. Kept from compilers."""

_ExceptionWrapper: Final = torch._utils.ExceptionWrapper
_Exhausted: Final = _utils.worker._IterableDatasetStopIteration

_EXPECTED: Final = (
    (BACKWARD_OWNER, BACKWARD_NAME),
    (LOADER_ITERATOR, "__next__"),
    (LOADER_ITERATOR, "_next_index"),
    (LOADER_ITERATOR, "_reset"),
    (_dataloader._MultiProcessingDataLoaderIter, "_process_data"),
    (_dataloader._MultiProcessingDataLoaderIter, "_try_put_index"),
    (DistributedDataParallel, "_check_sync_bufs_pre_fwd"),
    (DistributedDataParallel, "_get_ddp_logging_data"),
    (DistributedDataParallel, INSIDE_FORWARD),
    (torch, "_disable_dynamo"),
    (torch._C, "_current_autograd_node"),
    (torch._C, "_set_deterministic_algorithms"),
    (torch._C._autograd, "_get_sequence_nr"),
    (_python_dispatch, "_get_current_dispatch_mode_stack"),
    (_python_dispatch, "_push_mode"),
    (_python_dispatch, "_pop_mode"),
)


def verify_torch() -> None:
    """Raise ``ReproError`` where this torch lacks what the observer relies on."""
    missing = [f"{_title(owner)}.{name}" for owner, name in _EXPECTED if not hasattr(owner, name)]
    if tuple(inspect.signature(WORKER_LOOP).parameters)[: len(WORKER_ARGUMENTS)] != WORKER_ARGUMENTS:
        missing.append(f"{_title(WORKER_LOOP_OWNER)}.{WORKER_LOOP_NAME}({', '.join(WORKER_ARGUMENTS)}, …)")
    if missing:
        raise ReproError(
            f"torch {torch.__version__} lacks what observing relies on: {', '.join(missing)}",
            hint="install the torch version that this project pins, or record with capture=off",
        )


def _title(owner: object) -> str:
    return getattr(owner, "__qualname__", getattr(owner, "__name__", repr(owner)))


# -- loaders


def index_sampler(loader: DataLoader[Any]) -> object:
    """Return what the loader draws its index batches from: its batch sampler, or its sampler without batching."""
    return loader._index_sampler


def draws_indices(loader: DataLoader[Any]) -> bool:
    """Tell whether the loader has indices at all (an ``IterableDataset`` has none)."""
    return bool(loader._dataset_kind == _dataloader._DatasetKind.Map)


def next_task(iterator: Any) -> int | None:
    """Return the number that an iterator gives to the index batch it draws now; ``None`` without workers."""
    return getattr(iterator, "_send_idx", None)


def task_queues(iterator: Any) -> list[Any]:
    """Return the queues from which an iterator's workers get their tasks, one a worker."""
    return list(iterator._index_queues)


def carries_data(data: object) -> bool:
    """Tell whether what a worker sends is a batch, and not an error or the end of an iterable data set."""
    return not isinstance(data, (_ExceptionWrapper, _Exhausted))


# -- distributed data parallel


def ignored_names(ddp: DistributedDataParallel) -> frozenset[str]:
    """Return the qualified names of the parameters and buffers that DDP leaves alone."""
    return frozenset(ddp.parameters_to_ignore)


def untraced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``function`` as one that compilers do not trace into, without loading a compiler."""
    kept: Callable[..., Any] = torch._disable_dynamo(function, recursive=False)  # type: ignore[attr-defined]
    return kept


def buffers_were_synchronised(ddp: DistributedDataParallel) -> bool:
    """Tell, as DDP calls the wrapped module, whether it has just broadcast its buffers."""
    checks: Any = ddp
    return bool(checks._check_sync_bufs_pre_fwd())


def never_synchronises_buffers(ddp: DistributedDataParallel) -> bool:
    """Tell whether DDP was asked not to broadcast buffers at forward."""
    return not ddp.forward_sync_buffers


def bucket_layout(ddp: DistributedDataParallel) -> str:
    """Return the layout of DDP's gradient buckets as far as it can be read, as text.

    Sizes in bytes; ``rebuilt`` tells that DDP laid its buckets out anew in the order in which gradients got ready.
    """
    reads: Any = ddp
    data = reads._get_ddp_logging_data()
    if buckets_were_rebuilt(ddp) and not data.get("rebuilt_bucket_sizes"):
        # What DDP tells lags an iteration behind the buckets in force; this has it look at them (and at its timers).
        reads.logger.set_runtime_stats_and_log()
        data = reads._get_ddp_logging_data()
    keys = ("bucket_cap_bytes", "bucket_sizes", "rebuilt_bucket_sizes", "rebuilt_per_bucket_param_indices")
    lines = [f"{key}={data.get(key, '')}" for key in keys]
    return "\n".join([f"rebuilt={int(buckets_were_rebuilt(ddp))}", *lines])


def buckets_were_rebuilt(ddp: DistributedDataParallel) -> bool:
    """Tell whether DDP has laid its buckets out anew."""
    return bool(getattr(ddp, "_has_rebuilt_buckets", False))


def passes_before_rebuilt(ddp: DistributedDataParallel) -> int:
    """Return how many reducing backwards DDP needs, from now on, until it lays its buckets out anew; 0 for none.

    Measured with 3 and 4 ranks: one, two with a static graph, none where unused parameters are looked for.
    """
    if not reduces_in_buckets(ddp) or buckets_were_rebuilt(ddp):
        return 0
    if ddp.static_graph:
        return 2
    return 0 if ddp.find_unused_parameters else 1


def communication_hook_states(ddp: DistributedDataParallel) -> list[Any]:
    """Return the states that were given with the communication hooks of ``ddp``."""
    return [state for _, state in ddp._comm_hooks]


def reduces_in_buckets(ddp: DistributedDataParallel) -> bool:
    """Tell whether DDP has a reducer and its logger (it has none where every reduction is delayed)."""
    return getattr(ddp, "logger", None) is not None


# -- tensors and state

without_torch_function: Final = torch._C.DisableTorchFunctionSubclass
"""Context in which no ``__torch_function__`` of a tensor subclass is called."""


def wrapped_parts(tensor: Any) -> list[torch.Tensor] | None:
    """Return the tensors in which a tensor of a wrapper subclass holds its content; ``None`` for another tensor."""
    if not is_traceable_wrapper_subclass(tensor):
        return None
    names, _ = tensor.__tensor_flatten__()
    return [getattr(tensor, name) for name in names]


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return indices and values of a sparse COO tensor as they are stored, coalesced or not."""
    return tensor._indices(), tensor._values()


def device_generators() -> list[tuple[str, torch.Generator]]:
    """Return the default generators of the CUDA devices that are initialised, with their devices' names."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return []
    return [(f"cuda:{index}", generator) for index, generator in enumerate(torch.cuda.default_generators)]


def default_generator(device: Any) -> torch.Generator | None:
    """Return the generator that operators on ``device`` (``None``: the host) draw from where none is given."""
    kind = torch.device("cpu" if device is None else device)
    if kind.type == "cpu":
        return torch.default_generator
    known = dict(device_generators())
    return known.get(f"{kind.type}:{kind.index or 0}")


# -- operators


def current_node() -> Any:
    """Return the node of the autograd graph that this thread executes; ``None`` outside of a backward."""
    return torch._C._current_autograd_node()


def next_node_number() -> int:
    """Return the number that the next node of the autograd graph gets that this thread makes."""
    return int(torch._C._autograd._get_sequence_nr())


def node_number(node: Any) -> int:
    """Return the number that a node of the autograd graph got when it was made."""
    return int(node._sequence_nr())


def memory_of(tensor: torch.Tensor) -> int:
    """Return the address of the memory that a tensor is a part of; 0 where it has none."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return 0


def compiles() -> bool:
    """Tell whether something of this process was given to ``torch.compile``."""
    compiler = sys.modules.get("torch._dynamo.eval_frame")
    backends = getattr(compiler, "cached_backends", None) or {}
    return any(backend is not None for backend in backends.values())  # loading the compiler leaves a None there


@contextmanager
def strictly_deterministic() -> Iterator[None]:
    """Have operators without a deterministic form raise ``RuntimeError`` while the context lasts."""
    is_on, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch._C._set_deterministic_algorithms(True, warn_only=False)
    try:
        yield
    finally:
        torch._C._set_deterministic_algorithms(is_on, warn_only=warns)


@contextmanager
def without_modes() -> Iterator[None]:
    """Take all dispatch modes off the stack while the context lasts; what is pushed meanwhile is below them then."""
    taken = []
    while _python_dispatch._get_current_dispatch_mode() is not None:
        taken.append(_python_dispatch._pop_mode())
    try:
        yield
    finally:
        for mode in reversed(taken):
            _python_dispatch._push_mode(mode)


def take_out(mode: TorchDispatchMode) -> None:
    """Take one mode off the stack, wherever it stands. Raises ``LookupError`` where it is not on it."""
    if not any(one is mode for one in _python_dispatch._get_current_dispatch_mode_stack()):
        raise LookupError("the mode is not on the stack")
    above = []
    while _python_dispatch._get_current_dispatch_mode() is not mode:
        above.append(_python_dispatch._pop_mode())
    mode.__exit__(None, None, None)  # type: ignore[no-untyped-call]
    for one in reversed(above):
        _python_dispatch._push_mode(one)
