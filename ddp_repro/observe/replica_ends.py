"""What models under DDP end with that no optimizer of torch's steps: an optimizer of one's own may."""

import logging
import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
from torch.nn.parallel import DistributedDataParallel

from ddp_repro.observe.census import living
from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.names import buffer_slots, parameter_slots

_logger: Final = logging.getLogger(__name__)

Digests = dict[str, dict[str, str]]
"""Hexadecimal digests by name, of what is a ``param`` and what is a ``buffer``."""


def end_digest(tensor: torch.Tensor) -> str:
    """Return the digest; empty for a tensor whose memory was given back, as some shards' is."""
    try:
        with torch.no_grad():
            return tensor_digest(tensor).hex()
    except RuntimeError as error:
        _logger.warning("a tensor that was trained cannot be read at the end: %s", error)
        return ""


@dataclass(slots=True, kw_only=True)
class _Replica:
    ddp: weakref.ref[DistributedDataParallel]
    prefix: str
    tensors: dict[str, dict[str, torch.Tensor]]

    def look(self) -> None:
        """Take note of what hangs in the module now."""
        ddp = self.ddp()
        if ddp is not None:
            self.tensors = {
                kind: {slot.name: slot.owner[slot.key] for slot in slots_of(ddp.module, self.prefix)}
                for kind, slots_of in (("param", parameter_slots), ("buffer", buffer_slots))
            }


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

    def _meet(self, ddp: DistributedDataParallel) -> None:
        key = id(ddp)
        gone = weakref.ref(ddp, lambda _: self._let_go(key))
        self._replicas[key] = _Replica(ddp=gone, prefix=f"replica{self._count}.", tensors={})
        self._count += 1

    def read(self) -> Digests:
        """Return the digests of what no optimizer of torch's steps: as it is now, or was when its DDP was let go."""
        self.look()
        for replica in self._replicas.values():
            self._digest(replica)
        return self._digests

    def clear(self) -> None:
        """Hold nothing any more."""
        self._replicas.clear()

    def _let_go(self, key: int) -> None:
        replica = self._replicas.pop(key, None)
        if replica is not None and os.getpid() == self._pid:
            self._digest(replica)

    def _digest(self, replica: _Replica) -> None:
        if any(map(self._is_stepped, replica.tensors["param"].values())):
            return
        for kind, tensors in replica.tensors.items():
            self._digests[kind] |= {name: told for name, tensor in tensors.items() if (told := end_digest(tensor))}
