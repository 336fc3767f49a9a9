"""What the probes of one watch share."""

from dataclasses import dataclass

from ddp_repro.observe.names import Names
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.replicas import Replicas
from ddp_repro.observe.unmanaged import Unmanaged


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The recorder, and what is known of the models that are trained in this process."""

    recorder: Recorder
    names: Names
    replicas: Replicas
    unmanaged: Unmanaged


def new_scene(recorder: Recorder) -> Scene:
    """Return a scene in which nothing is known yet."""
    names = Names()
    replicas = Replicas(names)
    return Scene(recorder=recorder, names=names, replicas=replicas, unmanaged=Unmanaged(recorder, names, replicas))
