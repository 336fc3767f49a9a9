"""What models under DDP end with that no optimizer of torch's steps: an optimizer of one's own may."""

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.observe.census import living
from ddp_repro.observe.held_module import Digests, HeldModule, digests_of


@dataclass(slots=True, kw_only=True)
class _Replica:
    ddp: weakref.ref[DistributedDataParallel]
    held: HeldModule
    is_trained: bool = False

    def look(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return what it holds, and take note of gradients: a copy of a model, such as an average, gets none."""
        told = self.held.tensors()
        self.is_trained = self.is_trained or any(one.grad is not None for one in told["param"].values())
        return told


class ReplicaEnds:
    """Follows the DDP objects that it meets; what they hold lives no longer for being held here as well."""

    def __init__(self, is_stepped: Callable[[torch.Tensor], bool]) -> None:
        self._pid = os.getpid()
        self._is_stepped = is_stepped
        self._replicas: dict[int, _Replica] = {}
        self._count = 0
        self._digests: Digests = {"param": {}, "buffer": {}}

    def look(self) -> None:
        """Meet the DDP objects that there are."""
        for ddp in living(DistributedDataParallel):
            known = self._replicas.get(id(ddp))
            if (known is None or known.ddp() is not ddp) and "module" in vars(ddp).get("_modules", {}):
                self._meet(ddp)
        for replica in self._replicas.values():
            replica.look()

    def read(self) -> Digests:
        """Return the digests of what was trained and no optimizer of torch's steps: now, or when its DDP was let go."""
        self.look()
        for replica in self._replicas.values():
            self._digest(replica)
        return self._digests

    def clear(self) -> None:
        """Hold nothing any more."""
        self._replicas.clear()

    def _meet(self, ddp: DistributedDataParallel) -> None:
        key = id(ddp)
        gone = weakref.ref(ddp, lambda _: self._let_go(key))
        held = HeldModule(module=weakref.ref(ddp.module), prefix=f"replica{self._count}.")
        self._replicas[key] = _Replica(ddp=gone, held=held)
        self._count += 1

    def _let_go(self, key: int) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None and os.getpid() == self._pid:
            self._digest(replica)

    def _digest(self, replica: _Replica) -> None:
        told = replica.look()
        if not replica.is_trained or any(map(self._is_stepped, told["param"].values())):
            return
        for kind, tensors in told.items():
            self._digests[kind] |= digests_of(tensors)
