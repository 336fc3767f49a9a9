"""The one table from a cause to what is said of it and what to do: every finding is made from it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from ddp_repro.judge.findings import Finding, Severity, Witness


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """A cause in the user's words: a short ``title``, a sentence with gaps, and what to change."""

    title: str
    message: str
    advice: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Who saw what, where: the part of a finding that does not depend on its cause."""

    witness: Witness
    launches: tuple[int, ...]
    severity: Severity = "error"
    step: int | None = None
    ranks: tuple[int, ...] = ()
    phase: str = ""
    name: str = ""
    names: tuple[str, ...] = ()


def finding(cause: str, place: Place, gaps: Mapping[str, str], *, detail: str = "") -> Finding:
    """Return the finding of ``cause`` at ``place``: the gaps of its sentences filled, ``detail`` added."""
    entry = CAUSES[cause]
    message = entry.message.format_map(gaps)
    return Finding(
        witness=place.witness,
        severity=place.severity,
        cause=cause,
        title=entry.title.format_map(gaps),
        launches=place.launches,
        step=place.step,
        ranks=place.ranks,
        phase=place.phase,
        name=place.name,
        names=place.names,
        message=f"{message}; {detail}" if detail else message,
        advice=entry.advice.format_map(gaps),
    )


def preceded(found: Finding, words: str) -> Finding:
    """Return the finding with ``words`` before its message."""
    return replace(found, message=words + found.message)


CAUSES: Final[dict[str, Cause]] = {
    # What two launches differ in, in causal order: the first thing that differs while all it is computed from is equal.
    "missing-rank": Cause(
        title="a rank is missing",
        message="{missing} was recorded in one launch only",
        advice="compare launches of the same world size, and see rank-<r>.log for why a rank left nothing",
    ),
    "control-flow": Cause(
        title="the program took another path",
        message="{what}",
        advice="look for what decides how often this runs: time, data order, exceptions that are caught, early "
        "stopping, or a condition on the rank",
    ),
    "other-spec": Cause(
        title="another dtype or shape",
        message="{name} has another dtype or shape: {what}",
        advice="look for a batch of another size (drop_last, a filter) or a setting of precision that is not part of "
        "the configuration",
    ),
    "initialisation": Cause(
        title="initial weights drawn from an unseeded state",
        message="the initial value of {name} differs: the model was built before the seed was set, or from a generator "
        "that is not seeded",
        advice="seed before the model is built: call ddp_repro.seed_everything(seed) first",
    ),
    "data-order": Cause(
        title="the same samples in another order",
        message="{name}: the same samples come in another order",
        advice="give the sampler or the loader a seeded generator, or use ddp_repro.make_loader; sort file lists",
    ),
    "data-indices": Cause(
        title="other samples",
        message="{name}: other samples are drawn",
        advice="give the sampler or the loader a seeded generator, or use ddp_repro.make_loader",
    ),
    "data-source": Cause(
        title="the loader is set up differently",
        message="{name} differs: loader, sampler or data set are not set up alike",
        advice="make the data set and the loader's options depend on the configuration alone",
    ),
    "hash-seed": Cause(
        title="the order of sets or dicts of strings",
        message="the same samples have other content ({name}) and PYTHONHASHSEED is not set: sets of strings are "
        "ordered anew in every process",
        advice="sort sets before their order is used, or set PYTHONHASHSEED=0 before Python starts",
    ),
    "unseeded-library": Cause(
        title="{library} is not seeded",
        message="the same samples have other content ({name}), and {library}'s generator differs too",
        advice="seed {library} (ddp_repro.seed_everything, and ddp_repro.make_loader for the workers), or draw from a "
        "seeded generator",
    ),
    "data-content": Cause(
        title="other content of the same samples",
        message="the same samples have other content ({name}){generators}",
        advice="look for a generator of its own that is not seeded, the time, or the order of a directory listing or a "
        "set in the data set's __getitem__ and in its collate function",
    ),
    "rng-unseeded": Cause(
        title="{library} is not seeded",
        message="{library}'s generator starts in another state",
        advice="seed {library} before anything draws from it: call ddp_repro.seed_everything(seed) first, and use "
        "ddp_repro.make_loader for the workers",
    ),
    "rng-draws": Cause(
        title="more or fewer random numbers drawn from {library}",
        message="{library}'s generator was equal before and is not any more: more or fewer numbers were drawn",
        advice="look for draws that depend on something else (time, retries, another thread), and give evaluation, "
        "metrics and augmentation generators of their own (ddp_repro.generator)",
    ),
    "forward-buffers": Cause(
        title="buffers differ before the forward",
        message="{name} differs on entry to the forward, with the parameters equal",
        advice="look for code that writes to buffers outside the forward, and for buffers filled from unseeded data",
    ),
    "forward-operator": Cause(
        title="nondeterministic operator in the forward",
        message="{name} differs while parameters, data and random states are equal{value}: an operator of the forward "
        "or of the loss is not deterministic",
        advice="set determinism=debug, or torch.use_deterministic_algorithms(True) in your own script; if a CPU "
        "operator is the reason, one thread a rank (threads=1) cures it too",
    ),
    "backward-operator": Cause(
        title="nondeterministic operator in backward",
        message="the gradient of {name} differs before any reduction, while the loss is equal: a nondeterministic "
        "operator in backward",
        advice="set determinism=debug, or torch.use_deterministic_algorithms(True) in your own script; if a CPU "
        "operator is the reason, one thread a rank (threads=1) cures it too",
    ),
    "recomputation": Cause(
        title="the backward does not repeat the forward",
        message="the gradient of {name} differs before any reduction, while the loss is equal: what the variants "
        "differ in reaches the backward alone",
        advice="with activation checkpointing, let it keep the random state (preserve_rng_state=True) so that dropout "
        "draws the same again; else look for operators whose backward depends on what the variants differ in",
    ),
    "reduction-order": Cause(
        title="order of the reduction",
        message="the reduced gradient of {name} differs while the local gradients are equal on all ranks: they were "
        "summed in another order",
        advice="fix what orders the sum: bucket size (ddp.bucket_cap_mb), backend and its algorithm (NCCL_ALGO, "
        "NCCL_PROTO), number of channels; after a resume, run one forward and backward before the state is loaded",
    ),
    "gradient": Cause(
        title="backward or reduction",
        message="the gradient of {name} differs while the loss is equal; local gradients were not recorded, so "
        "backward and reduction cannot be told apart",
        advice="try determinism=debug first; then fix the order of the reduction (bucket size, NCCL_ALGO)",
    ),
    "gradient-processing": Cause(
        title="between the reduction and the optimizer",
        message="the gradient of {name} as the optimizer gets it differs while the reduced gradients are equal: "
        "clipping, unscaling or other code between backward and optimizer.step {is_odd}",
        advice="look at what changes gradients there, norms first; {remedy}",
    ),
    "thread-count": Cause(
        title="the number of threads",
        message="{name} differs{value} while parameters, data and random states are equal: sums are split among "
        "another number of threads",
        advice="keep the number of threads (threads=1, or OMP_NUM_THREADS and torch.set_num_threads), or expect last "
        "bits to differ between numbers of threads",
    ),
    "hyperparameters": Cause(
        title="other hyperparameters of the optimizer",
        message="{hyperparameter} of the optimizer differs{value}, and so {name} after the step",
        advice="look at the scheduler: whether it is stepped equally often and restored after a resume",
    ),
    "optimizer": Cause(
        title="the optimizer's arithmetic",
        message="{name} differs after the step while its gradient and the optimizer's hyperparameters are equal",
        advice="compare with a plain implementation (fused=False, foreach=False) and look for code that writes to "
        "parameters after optimizer.step",
    ),
    "optimizer-state": Cause(
        title="the optimizer's state",
        message="{name} differs after the step while parameters and gradients are equal{value}",
        advice="look for state that is lost, restored by position, or stepped twice, and for a scheduler out of step",
    ),
    "buffers": Cause(
        title="buffers differ after the step",
        message="{name} differs after the step while the parameters are equal",
        advice="look for buffers updated from unseeded data or by a nondeterministic operator (determinism=debug)",
    ),
    "loss-scale": Cause(
        title="the loss scale",
        message="{name} of the gradient scaler differs{value}",
        advice="look at which step overflowed, and whether the scaler's state is saved and restored",
    ),
    "other-end": Cause(
        title="another end",
        message="{name} ends with other bits, and no step that was observed shows where they part",
        advice="look for what changes the model or draws after the last step or in evaluation; where one launch was "
        "not observed (capture=off), observe both",
    ),
    "observation": Cause(
        title="an observation differs",
        message="{name} ({phase}) differs while everything before it is equal",
        advice="look at what computes it; set determinism=debug",
    ),
    # What must be equal on all ranks of one launch and is not.
    "replica-initialisation": Cause(
        title="replicas start unequal",
        message="the initial value of {name} is not the same on all ranks: {odd}",
        advice="do not change or replace parameters after DistributedDataParallel wrapped the model",
    ),
    "gradient-not-synchronised": Cause(
        title="gradients not synchronised",
        message="{gradient} of {name} is not the same on all ranks: {odd}",
        advice="call the wrapped model, not model.module, and the last backward of a step outside no_sync; do not "
        "replace parameters after wrapping",
    ),
    "replica-parameters": Cause(
        title="replicas drift apart",
        message="{name} is not the same on all ranks after the step: {odd}",
        advice="look for code that writes to parameters or steps the optimizer on some ranks only, and for gradients "
        "changed by rank after the reduction",
    ),
    "replica-hyperparameters": Cause(
        title="the optimizers' settings drift apart",
        message="{hyperparameter} of the optimizer is not the same on all ranks, and so {name} after the step: {odd}",
        advice="decide on it by what is equal on all ranks: all-reduce a metric before a scheduler, or an early stop, "
        "depends on it",
    ),
    "replica-buffers": Cause(
        title="buffers not broadcast",
        message="{name} is not the same on all ranks on entry to the forward: {odd}",
        advice="let DistributedDataParallel broadcast buffers (broadcast_buffers=True), use SyncBatchNorm, or exclude "
        "buffers that are meant to be local",
    ),
    "replica-state": Cause(
        title="replicas are not equal",
        message="{name} ({phase}) is not the same on all ranks: {odd}",
        advice="look for code that depends on the rank",
    ),
    # Why launches cannot be compared.
    "not-comparable": Cause(
        title="not comparable",
        message="the launches are not comparable: {fields}",
        advice="launch them alike, or name in compare.allow what may differ (the world size never may)",
    ),
    # What must hold within a launch.
    "shards-overlap": Cause(
        title="shards overlap or miss samples",
        message="{loader}, pass {pass}: {counts}{reason}",
        advice="give the samplers of all ranks the same seed and epoch and each its own rank, as "
        "torch.utils.data.DistributedSampler and ddp_repro.make_loader do",
    ),
    "shards-unshared": Cause(
        title="every rank draws from all samples",
        message="{loader}, pass {pass}: no sampler shares the data among the ranks and each shuffles it for "
        "itself: {counts}",
        advice="give the loader a torch.utils.data.DistributedSampler (or use ddp_repro.make_loader), unless each rank "
        "holds another part of the data",
    ),
    "evaluation-padding": Cause(
        title="evaluation counts samples twice",
        message="{loader}, pass {pass}: {counts} to fill up the shards, and an evaluation counts them twice unless it "
        "takes them out again",
        advice="take them out, as Accelerate's gather_for_metrics does, or evaluate over the data set without padding "
        "(every rank all of it, or shards of unequal length)",
    ),
    "epoch-order": Cause(
        title="every epoch has the same order",
        message="{loader}: pass {second} has the order of pass {first}, {reason}",
        advice="call sampler.set_epoch(epoch) before each epoch, on the sampler itself if it is wrapped, or use "
        "ddp_repro.make_loader, whose epoch advances by itself",
    ),
    "epoch-guard": Cause(
        title="set_epoch did not take effect",
        message="{loader}, pass {pass}: {reason}",
        advice="call set_epoch(epoch) before each epoch, on what shuffles itself; a data set in workers that stay "
        "needs to be told there (shared memory, or persistent_workers=False); epoch_guard=fix calls it for you",
    ),
    "worker-rng": Cause(
        title="workers draw the same random numbers",
        message="{loader}: {who} draw the same numbers from {library} for different samples",
        advice="seed each worker by its rank, worker and epoch (ddp_repro.make_loader does), and derive private "
        "generators of the data set from torch.initial_seed() in worker_init_fn",
    ),
    "correlated-noise": Cause(
        title="the same noise on several ranks",
        message="{where}: {library} draws the same numbers on {who}",
        advice="seed the ranks apart for augmentation and dropout (ddp_repro.seed_everything does), unless they are "
        "meant to draw alike",
    ),
    "software-differs": Cause(
        title="ranks run different software",
        message="the ranks of one launch do not run the same software: {fields}",
        advice="install the same environment on all nodes",
    ),
    "environment-differs": Cause(
        title="ranks run in different environments",
        message="the ranks of one launch do not run in the same environment: {fields}",
        advice="start all ranks with the same environment variables and thread counts",
    ),
    "config-differs": Cause(
        title="ranks run different configurations",
        message="the ranks of one launch do not run the same experiment: {fields}",
        advice="resolve the configuration once and hand it to all ranks",
    ),
    "hardware-differs": Cause(
        title="ranks run on different hardware",
        message="the ranks of one launch do not run on the same hardware: {fields}",
        advice="use nodes of one type: bits may depend on which rank runs where",
    ),
}
