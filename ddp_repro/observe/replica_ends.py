"""What models under DDP end with that no optimizer of torch's steps: an optimizer of one's own may."""

import os
import weakref
from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.observe.census import living
from ddp_repro.observe.held_module import Digests, HeldModule, digests_of


class ReplicaEnds:
    """Follows the DDP objects that it meets; what they hold lives no longer for being held here as well."""

    def __init__(self, is_stepped: Callable[[torch.Tensor], bool]) -> None:
        self._pid = os.getpid()
        self._is_stepped = is_stepped
        self._replicas: dict[int, tuple[weakref.ref[DistributedDataParallel], HeldModule]] = {}
        self._count = 0
        self._digests: Digests = {"param": {}, "buffer": {}}

    def look(self) -> None:
        """Meet the DDP objects that there are."""
        for ddp in living(DistributedDataParallel):
            known = self._replicas.get(id(ddp))
            if (known is None or known[0]() is not ddp) and "module" in vars(ddp).get("_modules", {}):
                self._meet(ddp)
        for _, held in self._replicas.values():
            held.look()

    def read(self) -> Digests:
        """Return the digests of what no optimizer of torch's steps: as it is now, or was when its DDP was let go."""
        self.look()
        for _, held in self._replicas.values():
            self._digest(held)
        return self._digests

    def clear(self) -> None:
        """Hold nothing any more."""
        self._replicas.clear()

    def _meet(self, ddp: DistributedDataParallel) -> None:
        key = id(ddp)
        gone = weakref.ref(ddp, lambda _: self._let_go(key))
        held = HeldModule(module=weakref.ref(ddp.module), prefix=f"replica{self._count}.")
        self._replicas[key] = (gone, held)
        self._count += 1

    def _let_go(self, key: int) -> None:
        _, held = self._replicas.pop(key, (None, None))
        if held is not None and os.getpid() == self._pid:
            self._digest(held)

    def _digest(self, held: HeldModule) -> None:
        told = held.tensors()
        if any(map(self._is_stepped, told["param"].values())):
            return
        for kind, tensors in told.items():
            self._digests[kind] |= digests_of(tensors)
