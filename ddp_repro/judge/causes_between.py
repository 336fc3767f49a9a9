"""What two launches differ in, in causal order: the first thing that differs while all it is computed from is equal."""

from typing import Final

from ddp_repro.judge.cause import Cause

BETWEEN_LAUNCHES: Final[dict[str, Cause]] = {
    "missing-rank": Cause(
        title="a rank is missing",
        message="{missing} was recorded in one launch only",
        advice="compare launches of the same world size, and see rank-<r>.log for why a rank left nothing",
    ),
    "control-flow": Cause(
        title="the program took another path",
        message="{what}",
        advice="look for what decides how often this runs: time, a generator that nobody seeds, data order, exceptions "
        "that are caught, early stopping, or a condition on the rank",
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
        message="{content} ({name}) and PYTHONHASHSEED is not set: sets of strings are ordered anew in every process",
        advice="sort sets before their order is used, or set PYTHONHASHSEED=0 before Python starts",
    ),
    "unseeded-library": Cause(
        title="{library} is not seeded",
        message="{content} ({name}), and {library}'s generator differs too",
        advice="seed {library} (ddp_repro.seed_everything, and ddp_repro.make_loader for the workers), or draw from a "
        "seeded generator",
    ),
    "data-content": Cause(
        title="other content of the same samples",
        message="the same samples have other content ({name}){generators}",
        advice="look for a generator of its own that is not seeded, the time, or the order of a directory listing or a "
        "set in the data set's __getitem__ and in its collate function",
    ),
    "data-stream": Cause(
        title="other batches of a data set without indices",
        message="{name} differs: a data set that is iterated in an order of its own delivers other batches; whether by "
        "their order, their samples or their content is not seen{generators}",
        advice="give what orders, splits and augments in the data set's __iter__ a generator that is seeded by rank, "
        "worker and epoch (torch.utils.data.get_worker_info), and sort file lists",
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
        message="{name} differs while data, random states and parameters as they were last seen are equal{value}: an "
        "operator of the forward or of the loss is not deterministic, or reads what is not seen (a generator of its "
        "own, the clock, a parameter that something wrote to in between)",
        advice="{cure}",
    ),
    "forward-inputs": Cause(
        title="what the forward reads, or the forward",
        message="{name} differs while parameters are equal{value}; no DataLoader delivers the batches, so what they "
        "hold and what is drawn for them was not seen: they may differ, or an operator is not deterministic",
        advice="see that batches which are made by hand are drawn from seeded generators (call "
        "ddp_repro.seed_everything(seed) first) and from files in a sorted order, or have a DataLoader deliver them: "
        "then it is told; if they are equal, set determinism=debug",
    ),
    "backward-operator": Cause(
        title="nondeterministic operator in backward",
        message="the gradient of {name} differs before any reduction, while the loss is equal: a nondeterministic "
        "operator in backward",
        advice="{cure}",
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
        "summed in another order, or what reduces them (a communication hook, a collective of your own) adds to them",
        advice="fix what orders the sum: bucket size (ddp.bucket_cap_mb), backend and its algorithm (NCCL_ALGO, "
        "NCCL_PROTO), number of channels; look at a hook of your own; after a resume, run one forward and backward "
        "before the state is loaded",
    ),
    "gradient": Cause(
        title="backward or reduction",
        message="the gradient of {name} differs while the loss is equal; local gradients were not recorded, so "
        "backward and reduction cannot be told apart",
        advice="{remedy}; then fix the order of the reduction (bucket size, NCCL_ALGO)",
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
        advice="look for buffers updated from unseeded data or by a nondeterministic operator; {remedy}",
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
        advice="look at what computes it; {remedy}",
    ),
}
