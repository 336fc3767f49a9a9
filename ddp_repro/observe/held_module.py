"""The tensors of a module, which are read again as long as it lives and once more as it is let go."""

import logging
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import nn

from ddp_repro.observe.digest import tensor_digest
from ddp_repro.observe.names import Slot, buffer_slots, parameter_slots

_logger: Final = logging.getLogger(__name__)

Digests = dict[str, dict[str, str]]
"""Hexadecimal digests by name, of what is a ``param`` and what is a ``buffer``."""


@dataclass(slots=True, kw_only=True)
class HeldModule:
    """A module, and where its tensors hang, which is not the module itself."""

    module: weakref.ref[nn.Module]
    prefix: str
    slots: dict[str, list[Slot]] = field(default_factory=dict)

    def look(self) -> dict[str, list[Slot]]:
        """Return where its tensors hang now, or hung when it was last there."""
        module = self.module()
        if module is not None:
            self.slots = {
                "param": parameter_slots(module, self.prefix),
                "buffer": buffer_slots(module, self.prefix),
            }
        return self.slots

    def tensors(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the tensors that hang there, by name, of each kind."""
        return {
            kind: {slot.name: tensor for slot in slots if (tensor := slot.owner.get(slot.key)) is not None}
            for kind, slots in self.look().items()
        }


def digests_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Return the digests by name; none of a tensor whose memory was given back, as some shards' is."""
    return {name: digest for name, tensor in tensors.items() if (digest := _digest(tensor))}


def _digest(tensor: torch.Tensor) -> str:
    try:
        with torch.no_grad():
            return tensor_digest(tensor).hex()
    except RuntimeError as error:
        _logger.warning("a tensor that was trained cannot be read at the end: %s", error)
        return ""
