"""What the probes of one watch share."""

from dataclasses import dataclass

from ddp_repro.observe.names import Names
from ddp_repro.observe.recorder import Recorder
from ddp_repro.observe.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """The recorder, and what is known of the models that are trained in this process."""

    recorder: Recorder
    names: Names
    replicas: Replicas


def new_scene(recorder: Recorder) -> Scene:
    """Return a scene in which nothing is known yet."""
    names = Names()
    return Scene(recorder=recorder, names=names, replicas=Replicas(names))
