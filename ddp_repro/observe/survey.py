"""Has operators run again on the same inputs, and asks torch whether they have a deterministic form.

The training goes on with what an operator gave the first time; what it is given again are copies where it writes to
its inputs, and generators are set back, so that no bit of the training moves.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import torch

from ddp_repro.observe import torch_internals
from ddp_repro.observe.deterministic_list import said_of
from ddp_repro.observe.operator_facts import Fact, fact_of, generator_of
from ddp_repro.observe.operator_plan import OperatorPlan, inputs, leaves, outputs
from ddp_repro.trace.document import write_json

SCHEMA: Final = 1
_HARDER: Final = 10  # times as often, for what torch itself says it has a deterministic form, or none
_TRIES: Final = 3  # calls of one operator at one place that are asked about their deterministic form
_PLAIN: Final = frozenset({torch.Tensor, torch.nn.Parameter})

Called = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An operator with its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SurveyPlan:
    """Where a rank's survey is written, and how often each operator runs again."""

    file: Path
    again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where an operator is called: module, source line, node of the graph (in a backward), part of the step."""

    module: str
    source: str
    node: str
    part: str


@dataclass(slots=True, kw_only=True)
class Entry:
    """One operator at one place: how often it was called, compared and seen to differ.

    ``said`` is what torch says as it refuses it under deterministic algorithms, ``listed`` what its documentation does.
    """

    operator: str
    module: str
    source: str
    node: str
    part: str
    calls: int = 0
    compared: int = 0
    differed: int = 0
    said: str = ""
    listed: list[str] = field(default_factory=list)
    tried: int = 0


class Survey:
    """What was seen of the operators of this rank so far; written to its file as each step ends."""

    def __init__(self, plan: SurveyPlan) -> None:
        self._plan = plan
        self._entries: dict[tuple[str, Place], Entry] = {}
        self._steps = 0
        self._modes: set[bool] = set()

    def call(self, plan: OperatorPlan, called: Called, place: Place) -> Any:
        """Make a call and, where it can be made again, look whether it gives the same bits."""
        func, args, kwargs = called
        entry = self._entry(plan, place)
        entry.calls += 1
        if plan.is_collective or not plan.has_output or not _is_plain(called):
            return func(*args, **kwargs)
        self._modes.add(torch.are_deterministic_algorithms_enabled())
        again = _Again(plan, called)
        result = func(*args, **kwargs)
        with torch.no_grad(), again.after():
            self._look(again, entry, outputs(plan, result, args, kwargs))
        return result

    def end_step(self) -> None:
        """Write what was seen so far."""
        self._steps += 1
        write_json(
            self._plan.file,
            {
                "schema": SCHEMA,
                "steps": self._steps,
                "deterministic": sorted(self._modes),
                "compiled": torch_internals.compiles(),
                "entries": [asdict(entry) for entry in self._entries.values()],
            },
        )

    def _entry(self, plan: OperatorPlan, place: Place) -> Entry:
        key = plan.title, place
        if key not in self._entries:
            fields = {name: getattr(place, name) for name in ("module", "source", "node", "part")}
            self._entries[key] = Entry(operator=plan.title, listed=said_of(plan.title), **fields)
        return self._entries[key]

    def _look(self, again: "_Again", entry: Entry, made: list[Any]) -> None:
        if not again.can:
            return
        first = again.run() if again.writes else _fact(made)
        seen = {first}
        for _ in range(self._plan.again * (_HARDER if entry.listed else 1)):
            seen.add(again.run())
            if len(seen) > 1 or None in seen:
                break
        if None in seen:
            return
        entry.compared += 1
        entry.differed += len(seen) > 1
        if entry.tried < _TRIES and not entry.said and torch.are_deterministic_algorithms_enabled():
            entry.tried += 1
            entry.said = again.refusal()


class _Again:
    """One call, to be made again: what it reads that it also writes was copied before it was made."""

    def __init__(self, plan: OperatorPlan, called: Called) -> None:
        self._plan = plan
        self._func, self._args, self._kwargs = called
        read = list(inputs(plan, *called))
        self._generator = generator_of(read, self._kwargs) if plan.draws else None
        self.can = not plan.draws or self._generator is not None
        self.writes = bool(plan.written)
        self._state = self._generator.get_state() if self._generator is not None else None
        self._copies = self._copied() if self.writes and self.can else {}

    @contextmanager
    def after(self) -> Iterator[None]:
        """Set the generator back afterwards to where the call left it."""
        state = self._generator.get_state() if self._generator is not None else None
        try:
            yield
        finally:
            if self._generator is not None and state is not None:
                self._generator.set_state(state)

    def run(self) -> Fact | None:
        """Make the call again and return what it gives; ``None`` where that cannot be read."""
        args, kwargs = self._fresh()
        if self._generator is not None and self._state is not None:
            self._generator.set_state(self._state)
        result = self._func(*args, **kwargs)
        return _fact(outputs(self._plan, result, args, kwargs))

    def refusal(self) -> str:
        """Return in torch's words why it has no deterministic form; empty where it has one, or needs none."""
        try:
            with torch_internals.strictly_deterministic():
                self.run()
        except RuntimeError as error:
            told = str(error).partition("\n")[0]
            return told if "determinis" in told.lower() else ""
        return ""

    def _copied(self) -> dict[int, torch.Tensor]:
        """Return copies, by the identity of the tensor, of all that lies in memory which the call writes to."""
        written = {torch_internals.memory_of(one) for one in self._tensors(self._written())}
        with torch.no_grad():
            return {
                id(one): one.detach().clone()
                for one in self._tensors([*self._args, *self._kwargs.values()])
                if torch_internals.memory_of(one) in written
            }

    def _written(self) -> list[Any]:
        return [self._args[at] if at < len(self._args) else self._kwargs.get(name) for at, name in self._plan.written]

    @staticmethod
    def _tensors(values: list[Any]) -> list[torch.Tensor]:
        return [leaf for value in values for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]

    def _fresh(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, with a copy of each copy in place of what the call writes to."""
        if not self._copies:
            return self._args, self._kwargs
        fresh = {key: copy.clone() for key, copy in self._copies.items()}

        def placed(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return [placed(part) for part in value]
            return fresh.get(id(value), value)

        return tuple(placed(value) for value in self._args), {name: placed(one) for name, one in self._kwargs.items()}


def _is_plain(called: Called) -> bool:
    """Tell whether all tensors are plain ones: of a wrapped one, the operators on its parts are seen as well."""
    _, args, kwargs = called
    tensors = (leaf for value in (*args, *kwargs.values()) for leaf in leaves(value) if isinstance(leaf, torch.Tensor))
    return all(type(one) in _PLAIN and not one.is_meta for one in tensors)


def _fact(values: list[Any]) -> Fact | None:
    try:
        return fact_of(values)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
