"""Observes the operators of the steps in a window: inputs, outputs and the line that called each of them."""

import sys
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ddp_repro.observe import torch_internals
from ddp_repro.observe.kept import Kept
from ddp_repro.observe.module_paths import ModulePaths
from ddp_repro.observe.names import Names
from ddp_repro.observe.operator_facts import Fact, fact_of, generator_of
from ddp_repro.observe.operator_plan import OperatorPlan, inputs, outputs, plan_of
from ddp_repro.observe.recorder import Recorder, Row
from ddp_repro.observe.sources import source_of
from ddp_repro.observe.survey import Place, Survey
from ddp_repro.observe.window import Room

_UNREADABLE: Final = ("unreadable", bytes(16))

Origin = tuple[str, str]
"""Module path and source line of the forward that made a node of the graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One call of an operator: its name in the step, and the part of the step that it is made in."""

    name: str
    phase: str
    part: str


class Operators:
    """The operators of the step under way.

    A call gives two rows: what it reads (``….in``, whose spec ends with the source line) and what it leaves
    (``….out``). What a collective leaves is read once something else reads it, or the backward is over.
    """

    def __init__(self, recorder: Recorder, names: Names, paths: ModulePaths, room: Room) -> None:
        self._recorder = recorder
        self._names = names
        self._paths = paths
        self._room = room
        self._kept = Kept(room.window)
        self._survey = Survey(room.window.survey) if room.window.survey is not None else None
        self._plans: dict[Any, OperatorPlan] = {}
        self._counts: Counter[str] = Counter()
        self._origins: dict[int, Origin] = {}
        self._pending: list[tuple[int, _Call, list[tuple[torch.Tensor, int]]]] = []
        self.mode = _Mode(self)
        self.steps_under_way = 0
        """Optimizers' steps that began and did not end."""

    def begin_step(self) -> None:
        """Count calls anew."""
        self._counts.clear()
        self._origins.clear()
        self.steps_under_way = 0

    def end_step(self, step: int) -> None:
        """Read what collectives left, and write the tensors that were kept of ``step``."""
        self.complete()
        self._kept.write(step)
        if self._survey is not None:
            self._survey.end_step()

    def dispatch(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Make the call that torch asks for, and observe it."""
        source = source_of(sys._getframe(2))  # noqa: SLF001 -- inspect's way to frames is 100 times slower
        if source is None or self._recorder.silent:
            return func(*args, **kwargs)
        plan = self._plans.get(func)
        if plan is None:
            plan = self._plans[func] = plan_of(func)
        (path, source), node = self._origin(source)
        if not plan.is_seen or self._room.is_full:
            return func(*args, **kwargs)
        if self._survey is not None:
            module = (path or self._written(plan, args)).partition("(")[0]
            place = Place(module=module, source=source, node=node, part=self._part())
            return self._survey.call(plan, (func, args, kwargs), place)
        return self._observe(plan, (func, args, kwargs), (path, f"{source} by {node}" if node else source))

    def complete(self) -> None:
        """Read what collectives left that are over now, where nothing wrote to it since."""
        pending, self._pending = self._pending, []
        for step, call, tensors in pending:
            alike = [one for one, version in tensors if one._version == version]  # noqa: SLF001 -- has no public name
            if len(alike) == len(tensors):
                self._add(step, call, "out", self._fact(alike))
                self._kept.keep(call.part, call.name, alike)

    def _observe(self, plan: OperatorPlan, called: tuple[Any, tuple[Any, ...], dict[str, Any]], origin: Origin) -> Any:
        func, args, kwargs = called
        call = self._call(plan, origin[0] or self._written(plan, args))
        read = list(inputs(plan, func, args, kwargs))
        if self._pending:
            self._complete_read(read)
        spec, digest = self._fact(read, generator_of(read, kwargs) if plan.draws else None)
        self._add(self._recorder.step, call, "in", (f"{spec} at {origin[1]}", digest))
        self._kept.keep_small(call.part, call.name, read)
        result = func(*args, **kwargs)
        made = outputs(plan, result, args, kwargs)
        if plan.is_collective and plan.has_output:
            tensors = [(one, one._version) for one in made if isinstance(one, torch.Tensor)]  # noqa: SLF001
            self._pending.append((self._recorder.step, call, tensors))
        elif plan.has_output:
            self._add(self._recorder.step, call, "out", self._fact(made))
            self._kept.keep(call.part, call.name, made)
        return result

    def _call(self, plan: OperatorPlan, path: str) -> _Call:
        name = f"{path}/{plan.title}" if path else plan.title
        number = self._counts[name]
        self._counts[name] += 1
        phase = "collective" if plan.is_collective else "op"
        return _Call(name=f"{name}#{number}", phase=phase, part=self._part())

    def _part(self) -> str:
        """Return the part of the step that is under way."""
        return "optimizer" if self.steps_under_way else "backward" if torch_internals.current_node() else "forward"

    def _origin(self, source: str) -> tuple[Origin, str]:
        """Return where a call comes from, and for one of the backward also the node of the graph that makes it.

        Torch numbers the nodes of the graph as it makes them, each before it calls the operator that the node is for.
        """
        node = torch_internals.current_node()
        if node is None or self._paths.current:
            origin = (self._paths.current, source)
            self._origins.setdefault(torch_internals.next_node_number() - 1, origin)
            return origin, ""
        parameter = getattr(node, "variable", None)
        if parameter is not None:
            return (self._names.get(parameter) or "", source), node.name()
        return self._origins.get(torch_internals.node_number(node), ("", source)), node.name()

    def _written(self, plan: OperatorPlan, args: tuple[Any, ...]) -> str:
        """Return the name of the parameter that an operator outside of modules writes to, as an optimizer's do."""
        first = args[0] if args and plan.written else None
        return (self._names.get(first) or "") if isinstance(first, torch.Tensor) else ""

    def _complete_read(self, read: list[Any]) -> None:
        """Read what collectives left before something else may write to it: an operator reads that memory now."""
        places = {torch_internals.memory_of(one) for one in read if isinstance(one, torch.Tensor)}
        if any(torch_internals.memory_of(one) in places for _, _, tensors in self._pending for one, _ in tensors):
            self.complete()

    @staticmethod
    def _fact(values: list[Any], generator: torch.Generator | None = None) -> Fact:
        try:
            return fact_of(values, generator)
        except (RuntimeError, NotImplementedError, TypeError):  # tensors without memory: fake ones, those of vmap
            return _UNREADABLE

    def _add(self, step: int, call: _Call, side: str, fact: Fact) -> None:
        row: Row = (step, call.phase, f"{call.name}.{side}", fact[0], fact[1], None)
        self._recorder.add_rows([row])
        if self._room.take(1):
            self._recorder.add_rows([self._room.full_row(step)])


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, operators: Operators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._operators = operators

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Have compiled regions stay compiled; what they fuse is not seen."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self._operators.dispatch(func, args, kwargs or {})


class Switch:
    """Puts the mode under those that the training enters itself, and takes it out wherever it stands then."""

    def __init__(self, recorder: Recorder, operators: Operators, room: Room) -> None:
        self._recorder = recorder
        self._operators = operators
        self._room = room
        self._step: int | None = None
        self.is_wanted = False
        """Whether operators are to be observed at all."""

    def begin(self) -> None:
        """Observe operators, if those of the step under way are to be; a second call in a step is ignored."""
        if not self.is_wanted or self._step is not None or not self._room.is_open(self._recorder.step):
            return
        self._step = self._recorder.step
        self._operators.begin_step()
        with torch_internals.without_modes():
            self._operators.mode.__enter__()  # type: ignore[no-untyped-call]

    def end_if_over(self) -> None:
        """Observe no operators any more, if the step in which that began is over."""
        if self._step is not None and self._step != self._recorder.step:
            self.end()

    def end(self) -> None:
        """Observe no operators any more until the next step begins."""
        step, self._step = self._step, None
        if step is None:
            return
        with suppress(LookupError):
            torch_internals.take_out(self._operators.mode)
        self._operators.end_step(step)
