"""What the probes of one watch share."""

from dataclasses import dataclass

from ddp_repro.observe.boundary import Boundary, Wanted, no_boundary
from ddp_repro.observe.module_paths import ModulePaths
from ddp_repro.observe.names import Names
from ddp_repro.observe.operators import Operators, Switch
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.replicas import Replicas
from ddp_repro.observe.unmanaged import Unmanaged
from ddp_repro.observe.window import Room, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The recorder, and what is known of the models that are trained in this process."""

    recorder: Recorder
    names: Names
    replicas: Replicas
    unmanaged: Unmanaged
    epoch_guard: str
    """What is done about an epoch that was not set: ``report``, ``error`` or ``fix``."""
    backwards: "Backwards"
    boundary: Boundary
    paths: ModulePaths
    room: Room
    operators: Operators
    switch: Switch


@dataclass(slots=True)
class Backwards:
    """How many outermost backwards began."""

    count: int = 0


def new_scene(
    recorder: Recorder, epoch_guard: str = "report", boundary: Wanted = no_boundary, window: Window | None = None
) -> Scene:
    """Return a scene in which nothing is known yet."""
    names = Names()
    replicas = Replicas(names)
    paths, room = ModulePaths(names), Room(window or Window())
    operators = Operators(recorder, names, paths, room)
    return Scene(
        recorder=recorder,
        names=names,
        replicas=replicas,
        unmanaged=Unmanaged(recorder, names, replicas),
        epoch_guard=epoch_guard,
        backwards=Backwards(),
        boundary=Boundary(recorder, boundary),
        paths=paths,
        room=room,
        operators=operators,
        switch=Switch(recorder, operators, room),
    )
