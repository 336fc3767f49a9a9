"""When the optimizer steps of this rank ended, and how much memory it took; nothing else is observed for that."""

import time
import weakref
from pathlib import Path
from typing import Any, Final

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.hooks import RemovableHandle

from ddp_repro.trace.document import write_json
from ddp_repro.trace.timing import TIMING_SCHEMA

_STATUS: Final = Path("/proc/self/status")


class Stopwatch:
    """Notes the end of each step of the optimizer that steps first.

    On a GPU the moments are events in its stream, which cost no synchronisation: the host is ahead of the device.
    """

    def __init__(self) -> None:
        self._leader: weakref.ref[Optimizer] | None = None
        self._ends: list[int] = []
        self._events: list[torch.cuda.Event] = []
        self._device: torch.device | None = None

    def attach(self) -> RemovableHandle:
        """Note the steps of this process from now on, or until the handle is removed."""
        return register_optimizer_step_post_hook(self._after)

    def write(self, path: Path) -> None:
        """Write what was noted; raise ReproError where it cannot be written."""
        memory = _peak_rss_bytes()  # before anything is allocated for telling it
        on_gpu = len(self._events) == len(self._ends) > 0
        intervals = self._on_device() if on_gpu else [b - a for a, b in zip(self._ends, self._ends[1:], strict=False)]
        write_json(
            path,
            {
                "schema": TIMING_SCHEMA,
                "clock": "cuda" if on_gpu else "host",
                "intervals_ns": intervals,
                "peak_rss_bytes": memory,
                "peak_gpu_bytes": torch.cuda.max_memory_allocated(self._device) if on_gpu else None,
            },
        )

    def _after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        leader = None if self._leader is None else self._leader()
        if leader is None:
            self._leader = weakref.ref(optimizer)
            self._device = next((one.device for group in optimizer.param_groups for one in group["params"]), None)
        elif leader is not optimizer:
            return
        self._ends.append(time.perf_counter_ns())
        if self._device is not None and self._device.type == "cuda":
            with torch.cuda.device(self._device):
                event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch has none
                event.record()
            self._events.append(event)

    def _on_device(self) -> list[int]:
        torch.cuda.synchronize(self._device)
        pairs = zip(self._events, self._events[1:], strict=False)
        return [round(before.elapsed_time(after) * 1e6) for before, after in pairs]


def _peak_rss_bytes() -> int | None:
    """Return the largest resident memory of this program.

    Not ``ru_maxrss``, which a program takes over from the one that started it.
    """
    try:
        lines = _STATUS.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    told = next((line for line in lines if line.startswith("VmHWM:")), "")
    return int(told.split()[1]) * 1024 if told else None
