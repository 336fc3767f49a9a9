"""What training ends with: the parameters and buffers of the models that were trained, observed or not."""

import os
import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from ddp_repro.observe.held_module import Digests, HeldModule, digests_of
from ddp_repro.observe.names import modules_holding
from ddp_repro.observe.replacement import Detach
from ddp_repro.observe.replica_ends import ReplicaEnds


@dataclass(slots=True, kw_only=True)
class _Stepped:
    """An optimizer that stepped, with what it holds: that lives no longer for being held here as well."""

    optimizer: weakref.ref[Optimizer]
    number: int
    parameters: dict[str, torch.Tensor]
    identities: list[int]
    roots: list[HeldModule]


class Ends:
    """Follows all optimizers of this process by a hook on their steps, in which nothing is digested.

    A model can be gone when the script is through. Its tensors are held as long as its optimizer, which holds them
    itself: they are read as that one goes, and again at the end where they are still there.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._stepped: dict[int, _Stepped] = {}
        self._left: list[tuple[dict[str, weakref.ref[torch.Tensor]], list[HeldModule]]] = []
        self._roots: list[HeldModule] = []
        self._places: dict[int, tuple[weakref.ref[torch.Tensor], str, HeldModule]] = {}
        self._replicas = ReplicaEnds(self._is_stepped)
        self._count = 0
        self._digests: Digests = {"param": {}, "buffer": {}}

    def attach(self) -> Detach:
        """Follow the optimizers until the returned callable is called."""
        handle = register_optimizer_step_post_hook(self._after)

        def detach() -> None:
            handle.remove()
            self._stepped.clear()
            self._left.clear()
            self._roots.clear()
            self._places.clear()
            self._replicas.clear()

        return detach

    def read(self) -> Digests:
        """Return the digests of all that was trained, by qualified names: as it is now, or was when it was let go."""
        for tensors, roots in self._left:
            alive = {name: tensor for name, reference in tensors.items() if (tensor := reference()) is not None}
            self._digest(alive, roots)
        for stepped in self._stepped.values():
            self._digest(stepped.parameters, stepped.roots)
        replicas = self._replicas.read()
        return {kind: {**digests, **replicas[kind]} for kind, digests in self._digests.items()}

    def _after(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if os.getpid() != self._pid:
            return
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        identities = list(map(id, parameters))
        key = id(optimizer)
        known = self._stepped.get(key)
        if known is None or known.optimizer() is not optimizer:
            gone = weakref.ref(optimizer, lambda _: self._let_go(key))
            known = _Stepped(optimizer=gone, number=self._count, parameters={}, identities=[], roots=[])
            self._stepped[key] = known
            self._count += 1
        if known.identities != identities:
            known.identities = identities
            self._meet(known, parameters)

    def _meet(self, stepped: _Stepped, parameters: list[torch.Tensor]) -> None:
        for module, _ in modules_holding([one for one in parameters if self._known(one) is None]):
            root = self._root(module)
            for slot in root.look()["param"]:
                tensor = slot.owner[slot.key]
                if self._known(tensor) is None:
                    self._places[id(tensor)] = (weakref.ref(tensor), slot.name, root)
        stepped.parameters, roots = {}, {}
        for place, parameter in enumerate(parameters):
            known = self._known(parameter)
            if known is not None:
                roots[id(known[1])] = known[1]
            name = f"optimizer{stepped.number}.param{place}" if known is None else known[0]
            stepped.parameters[name] = parameter
        stepped.roots = list(roots.values())
        self._replicas.look()

    def _is_stepped(self, parameter: torch.Tensor) -> bool:
        """Tell whether a parameter is of a model that an optimizer of torch's stepped."""
        return self._known(parameter) is not None or any(
            id(parameter) in stepped.identities for stepped in self._stepped.values()
        )

    def _known(self, parameter: torch.Tensor) -> tuple[str, HeldModule] | None:
        known = self._places.get(id(parameter))
        return known[1:] if known is not None and known[0]() is parameter else None

    def _root(self, module: nn.Module) -> HeldModule:
        known = next((root for root in self._roots if root.module() is module), None)
        if known is None:
            prefix = f"model{len(self._roots)}." if self._roots else ""
            known = HeldModule(module=weakref.ref(module), prefix=prefix)
            self._roots.append(known)
        return known

    def _let_go(self, key: int) -> None:
        stepped = self._stepped.pop(key, None)
        if stepped is None or os.getpid() != self._pid:
            return
        self._digest(stepped.parameters, stepped.roots)
        references = {name: weakref.ref(tensor) for name, tensor in stepped.parameters.items()}
        self._left.append((references, stepped.roots))
        still = {id(root) for other in self._stepped.values() for root in other.roots}
        for root in stepped.roots:
            if id(root) not in still:
                root.slots = {}

    def _digest(self, parameters: dict[str, torch.Tensor], roots: list[HeldModule]) -> None:
        told = {"param": dict(parameters), "buffer": {}}
        for root in roots:
            for phase, tensors in root.tensors().items():
                for name, tensor in tensors.items():
                    told[phase].setdefault(name, tensor)
        for phase, tensors in told.items():
            self._digests[phase] |= digests_of(tensors)
