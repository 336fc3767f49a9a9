"""What a launch that goes on from a checkpoint did not get back, as it is found before its first step."""

from typing import Final

from ddp_repro.judge.cause import Cause

RESUMED: Final[dict[str, Cause]] = {
    "begun-anew": Cause(
        title="the run did not go on from its checkpoint",
        message="the launch that was to go on from its checkpoint starts with the parameters of the very beginning, as "
        "if it had been given none",
        advice="have the script read what resume.load_args gives it, and load the checkpoint before it trains",
    ),
    "restored-position": Cause(
        title="the place in the data was not restored",
        message="the run that goes on from step {step} is not where it was in its data ({names}){where}{position}",
        advice="save the epoch and the number of batches that were trained on, call set_epoch with it before the "
        "loader is iterated, and skip as many batches; at an epoch's end go on with the next epoch",
    ),
    "restored-generator": Cause(
        title="the state of {library} was not restored",
        message="before step {step} the generator of {library} is in another state than where nothing was "
        "stopped{where}",
        advice="save the state of {library}'s generator on every rank, and put it back after the model was built "
        "and the loader's iterator was made, right before training goes on (ddp_repro.save_checkpoint saves all of "
        "them)",
    ),
    "idle-generator": Cause(
        title="the state of {library} was not restored",
        message="before step {step} the generator of {library} is in another state than where nothing was "
        "stopped{where}; nothing drew from it in the steps that were compared",
        advice="save its state on every rank and put it back, or do not seed what nothing draws from",
    ),
    "restored-scheduler": Cause(
        title="the scheduler was not restored",
        message="before step {step} the scheduler stands elsewhere: {names}{where}",
        advice="save scheduler.state_dict() and load it after the optimizer's; do not step the scheduler to catch up",
    ),
    "restored-settings": Cause(
        title="the optimizer's settings were not restored",
        message="before step {step} a setting of the optimizer is another one: {names}{where}",
        advice="load the optimizer's state_dict after the optimizer and its scheduler were made, and the "
        "scheduler's after it: making a scheduler sets the learning rate anew",
    ),
    "restored-scaler": Cause(
        title="the gradient scaler was not restored",
        message="before step {step} the gradient scaler has another state: {names}{where}",
        advice="save scaler.state_dict() and load it before the first backward",
    ),
    "restored-optimizer": Cause(
        title="the optimizer's state was not restored",
        message="before step {step} the optimizer's state is another one: {names}{where}",
        advice="save optimizer.state_dict() and load it; keep the order of parameters and groups, as state is "
        "loaded by position, or use ddp_repro.save_checkpoint, which saves it by name",
    ),
    "restored-copy": Cause(
        title="a copy of the model was not restored",
        message="before step {step} a module that is not trained itself (an average, a teacher) differs: "
        "{names}{where}",
        advice="save its state_dict as well, with its count of updates, and load it after it was made from the model",
    ),
    "restored-parameters": Cause(
        title="the parameters were not restored",
        message="before step {step} parameters differ: {names}{where}",
        advice="load the model's state_dict with strict=True before DDP wraps it, from a checkpoint that was "
        "written after the step, and look for what is changed between loading and training",
    ),
    "restored-draws": Cause(
        title="samples are augmented from other random numbers",
        message="the first batches after step {step} hold the same samples with other content ({names}){where}, "
        "while the main process's generators are equal: what loader workers or the data set itself draw was not "
        "restored",
        advice="draw each sample's augmentation from (seed, epoch, index), as ddp_repro.make_loader does, so that "
        "nothing has to be restored; or fetch and skip the batches that were trained on with workers seeded by "
        "(rank, worker, epoch)",
    ),
    "restored-buffers": Cause(
        title="buffers were not restored",
        message="at the first forward after step {step} buffers differ, with the parameters equal: {names}{where}",
        advice="save the model's whole state_dict, buffers among it; where DDP does not broadcast buffers, each "
        "rank's own",
    ),
    "bucket-layout": Cause(
        title="DDP reduces its first gradients in other buckets",
        message="local gradients are equal and reduced ones differ in the first step after step {step}, where the "
        "layout of DDP's buckets differs: a new DDP reduces its first iteration in another order than those that "
        "follow{where}",
        advice="call ddp_repro.settle_buckets(ddp_model, example_batch) after DDP wraps the model and before the "
        "checkpoint is loaded",
    ),
}
