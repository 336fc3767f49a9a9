"""What is wrong within a launch, and why launches cannot be compared."""

from typing import Final

from ddp_repro.judge.cause import Cause

WITHIN_A_LAUNCH: Final[dict[str, Cause]] = {
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
    "unused-parameters": Cause(
        title="gradients not synchronised: unused parameters",
        message="the reduced gradient of {name} is not the same on all ranks: {odd}; {unused} got no gradient on any "
        "rank, and DistributedDataParallel waits for those of all parameters",
        advice="set ddp.find_unused_parameters=true (find_unused_parameters=True in your own script) or leave unused "
        "parameters out of the model; if DistributedDataParallel had no part in it, call the wrapped model, not "
        "model.module",
    ),
    "replica-parameters": Cause(
        title="replicas drift apart",
        message="{name} is not the same on all ranks after the step: {odd}",
        advice="look for code that writes to parameters or steps the optimizer on some ranks only, and for gradients "
        "changed by rank after the reduction",
    ),
    "replica-end": Cause(
        title="ranks end with other parameters",
        message="{count}, {name} first, are equal on all ranks after the last step and not as the ranks end: {odd} "
        "changed them after training",
        advice="nothing, where a rank takes an average over for its own use; else look for what writes to parameters "
        "after the last step on some ranks only, and save what rank 0 holds",
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
        advice="let DistributedDataParallel broadcast buffers (broadcast_buffers=True), use SyncBatchNorm, update an "
        "averaged model on all ranks, or exclude buffers that are meant to be local (judge.ignore)",
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
    "shards-repeated": Cause(
        title="each sample goes to several ranks",
        message="{loader}, pass {pass}: each of its samples is delivered {times} times, by several ranks; repeated "
        "augmentation is meant to, and a sampler that does not split the samples would look the same",
        advice="nothing, where this is meant; else give each rank its own share, as "
        "torch.utils.data.DistributedSampler does",
    ),
    "shards-partial": Cause(
        title="a part of the data set",
        message="{loader}, pass {pass}: {never} are delivered by no rank, and none twice; an epoch that is meant to be "
        "shorter than the data set looks the same as shares that nobody takes",
        advice="nothing, where this is meant; else see that the shares of all ranks make up the data set",
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
    "folders-differ": Cause(
        title="ranks name different folders",
        message="names or folders that follow from the clock are not the same on all ranks: {fields}",
        advice="name them once and hand them to all ranks (hydra.run.dir=…), or let rank 0 alone write there",
    ),
    "hardware-differs": Cause(
        title="ranks run on different hardware",
        message="the ranks of one launch do not run on the same hardware: {fields}",
        advice="use nodes of one type: bits may depend on which rank runs where",
    ),
}
