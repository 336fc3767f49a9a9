"""Around each optimizer's step: the gradients it gets, and what it leaves."""

import functools
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from ddp_repro.observe.boundary import Item
from ddp_repro.observe.content import array_fact
from ddp_repro.observe.digest import REPLICATED, observation
from ddp_repro.observe.probes.steps import StepCounter
from ddp_repro.observe.recorder import Row, Scalar, number, text
from ddp_repro.observe.replacement import Detach, removing
from ddp_repro.observe.scene import Scene
from ddp_repro.observe.standing import is_distributed, several_ranks, standing_alone


def attach(scene: Scene) -> Detach:
    """Watch the steps of all optimizers."""
    probe = _OptimizerProbe(scene)
    scene.boundary.tellers.append(probe.held)
    handles = [register_optimizer_step_pre_hook(probe.before), register_optimizer_step_post_hook(probe.after)]

    return removing(handles)


class _Plan:
    """The parameters of one optimizer with their names, as long as its groups stay as they are."""

    def __init__(self, scene: Scene, parameters: list[torch.Tensor], places: list[str]) -> None:
        if any(scene.names.get(parameter) is None for parameter in parameters):
            scene.names.learn_from_modules(parameters)
        self.parameters = [
            (parameter, scene.names.get(parameter) or place)
            for parameter, place in zip(parameters, places, strict=True)
        ]
        self.identities = [id(parameter) for parameter in parameters]
        self.state_names: dict[tuple[str, Any], str] = {}
        self.hyperparameters: dict[str, tuple[Any, bool, list[tuple[str, Scalar]]]] = {}


class _OptimizerProbe:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._recorder = scene.recorder
        self._counter = StepCounter(scene.recorder)
        self._plans: weakref.WeakKeyDictionary[Optimizer, _Plan] = weakref.WeakKeyDictionary()

    def before(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the gradients; where a closure computes them within the step, have that done at the closure's end."""
        if self._recorder.silent or not self._counter.begin(optimizer):
            return None
        self._scene.unmanaged.look(optimizer)
        self._scene.boundary.reach()
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if not callable(closure):
            self._record_gradients(optimizer)
            return None
        watched = self._watched_closure(closure, optimizer)
        if "closure" in kwargs:
            return args, {**kwargs, "closure": watched}
        return (args[0], watched, *args[2:]), kwargs

    def after(self, optimizer: Optimizer, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
        """Record what an outermost step left, and count it."""
        if self._recorder.silent:
            return
        if self._counter.leaves(optimizer):
            self._record_outcome(optimizer)
            self._scene.boundary.leave()
        self._counter.end(optimizer)

    def _watched_closure(self, closure: Callable[[], Any], optimizer: Optimizer) -> Callable[[], Any]:
        @functools.wraps(closure, updated=())
        def watched() -> Any:
            result = closure()
            self._record_gradients(optimizer)
            return result

        return watched

    def _plan(self, optimizer: Optimizer) -> _Plan:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        plan = self._plans.get(optimizer)
        if plan is None or plan.identities != list(map(id, parameters)):
            places = [
                f"group{index}.param{position}"
                for index, group in enumerate(optimizer.param_groups)
                for position in range(len(group["params"]))
            ]
            plan = self._plans[optimizer] = _Plan(self._scene, parameters, places)
        return plan

    def _record_gradients(self, optimizer: Optimizer) -> None:
        """Record what the optimizer gets; where no DDP reduces, that is also the first look at what was reduced."""
        step, managed, ranks = self._recorder.step, self._scene.replicas.managed_ids(), several_ranks()
        under_ddp = self._scene.replicas.parameter_ids()
        reduced: list[Row] = []
        rows: list[Row] = []
        for parameter, name in self._plan(optimizer).parameters:
            gradient = parameter.grad
            if gradient is None:
                continue
            spec, digest = observation(gradient)
            alone = id(parameter) not in under_ddp
            text_of = spec.texts[standing_alone(gradient)] if alone else spec.texts[id(parameter) in managed]
            rows.append((step, "grad_step", name, text_of, digest, None))
            if alone and ranks:
                reduced.append((step, "grad_reduced", name, text_of, digest, None))
        self._recorder.add_rows(reduced + rows)

    def _record_outcome(self, optimizer: Optimizer) -> None:
        plan = self._plan(optimizer)
        managed, under_ddp = self._scene.replicas.managed_ids(), self._scene.replicas.parameter_ids()
        rows: list[Row] = []
        step = self._recorder.step
        for parameter, name in plan.parameters:
            spec, digest = observation(parameter)
            alone = id(parameter) not in under_ddp
            text_of = spec.texts[standing_alone(parameter)] if alone else spec.texts[id(parameter) in managed]
            rows.append((step, "param", name, text_of, digest, None))
        self._recorder.add_rows([*rows, *self._idle_parameters()])
        self._record_buffers()
        for stepped in [optimizer, *self._counter.inner]:
            self._record_state(stepped)
        self._record_hyperparameters(optimizer, plan, shared=_shares_settings(optimizer, plan, managed))

    def _idle_parameters(self) -> list[Row]:
        """Return the rows of parameters under DDP that no optimizer steps: frozen ones, teachers, hand-made updates."""
        stepped = self._scene.unmanaged.optimized_ids()
        rows: list[Row] = []
        for replica in self._scene.replicas:
            for slot, parameter, managed in replica.parameters:
                if id(parameter) not in stepped:
                    spec, digest = observation(parameter)
                    rows.append((self._recorder.step, "param", slot.name, spec.texts[managed], digest, None))
        return rows

    def _record_buffers(self) -> None:
        for replica in self._scene.replicas:
            if replica.entered:
                replica.entered = False
                replica.record_buffers(self._recorder, replicated=False)
        self._scene.unmanaged.record_buffers()

    def held(self) -> Iterator[Item]:
        """Yield what each optimizer holds between two steps: its settings, then its state, by parameter name."""
        optimizers = self._scene.unmanaged.optimizers()
        for optimizer in optimizers:
            for name, spec, digest, value in self._hyperparameters(optimizer, self._plan(optimizer), shared=False):
                yield f"optimizer.{name}", spec, digest, value
        for optimizer in optimizers:
            for name, spec, digest, value in self._state(optimizer):
                yield f"optimizer.{name}", spec, digest, value

    def _record_state(self, optimizer: Optimizer) -> None:
        step = self._recorder.step
        self._recorder.add_rows([(step, "optimizer", *item) for item in self._state(optimizer)])

    def _state(self, optimizer: Optimizer) -> Iterator[Item]:
        plan, state = self._plan(optimizer), optimizer.state
        names = plan.state_names
        for parameter, name in plan.parameters:
            for key, value in (state.get(parameter) or {}).items():
                place = names.get((name, key))
                if place is None:
                    place = names[name, key] = f"{name}.{key}"
                if isinstance(value, torch.Tensor):
                    spec, digest = observation(value)
                    yield place, spec.text, digest, None
                else:
                    yield from _leaves(place, value)
        for key, value in state.items():
            if isinstance(key, (str, int)):  # what belongs to no parameter
                yield from _leaves(f"state.{key}", value)

    def _record_hyperparameters(self, optimizer: Optimizer, plan: _Plan, *, shared: bool) -> None:
        step = self._recorder.step
        rows: list[Row] = [(step, "optimizer", *item) for item in self._hyperparameters(optimizer, plan, shared=shared)]
        self._recorder.add_rows(rows)

    def _hyperparameters(self, optimizer: Optimizer, plan: _Plan, *, shared: bool) -> Iterator[Item]:
        """Yield the groups' settings; ``shared`` tells that all ranks step what DDP keeps equal with the same ones."""
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key == "params":
                    continue
                place = f"group{index}.{key}"
                known = plan.hyperparameters.get(place)
                # A tensor can change and stay the same object; numbers, texts and tuples of them cannot.
                mutable = isinstance(value, (torch.Tensor, list, dict))
                if known is None or known[0] is not value or known[1] is not shared or mutable:
                    suffix = REPLICATED if shared else ""
                    leaves = _leaves(place, value)
                    facts = [(name, (spec + suffix, digest, number)) for name, spec, digest, number in leaves]
                    known = plan.hyperparameters[place] = (value, shared, facts)
                for name, fact in known[2]:
                    yield (name, *fact)


def _shares_settings(optimizer: Optimizer, plan: _Plan, managed: set[int]) -> bool:
    """Tell whether DDP keeps parameters of this optimizer equal, and ranks do not each step a part of them."""
    parameters = [parameter for parameter, _ in plan.parameters]
    if any(cls.__name__ == "ZeroRedundancyOptimizer" for cls in type(optimizer).__mro__):
        return False
    return any(id(parameter) in managed for parameter in parameters) and not any(map(is_distributed, parameters))


def _leaves(place: str, value: Any) -> Iterator[Item]:
    """Yield name, spec, digest and value of each tensor, number and text in a piece of an optimizer's state."""
    if isinstance(value, torch.Tensor):
        spec, digest = observation(value)
        yield place, spec.text, digest, float(value.item()) if value.numel() == 1 and not value.is_complex() else None
    elif isinstance(value, (bool, int, float)):
        yield (place, *number(value))
    elif isinstance(value, str):
        yield (place, *text(value))
    elif hasattr(value, "tobytes") and hasattr(value, "dtype"):
        yield (place, *array_fact(value))
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(f"{place}.{key}", part)
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from _leaves(f"{place}[{index}]", part)
