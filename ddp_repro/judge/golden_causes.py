"""What is said where a launch is not what its golden holds: a change of code, as a rule, and no chance."""

from typing import Final

from ddp_repro.judge.cause import Cause

_MEANT: Final = "if the change is meant, accept it (golden.accept=true); else look at what changed{since}: "

_TEXTS: Final = {
    "initialisation": (
        "other initial weights",
        "the initial value of {name} is another one",
        "the model's layers, their order, how they are initialised, and what draws numbers before the model is built",
    ),
    "data": (
        "other data, or another order of it",
        "what the loaders deliver is not the same: other samples, another order, or other content",
        "the data set, its files, samplers, loaders and augmentation",
    ),
    "data-order": (
        "the same samples in another order",
        "{name}: the same samples come in another order",
        "samplers, loaders, their generators and seeds, the order of file lists",
    ),
    "data-indices": (
        "other samples",
        "{name}: other samples are drawn",
        "the data set, samplers, loaders, their generators and seeds",
    ),
    "data-source": (
        "the loader is set up differently",
        "{name} is another one: loader, sampler or data set are not set up alike",
        "the data set, and the options of its loader",
    ),
    "data-content": (
        "other content of the same samples",
        "the same samples have other content ({name}){generators}",
        "the data set and its files, augmentation, and the collate function",
    ),
    "data-stream": (
        "other batches of a data set without indices",
        "{name}: a data set that is iterated in an order of its own delivers other batches{generators}",
        "the data set and its files, and what orders, splits and augments in its __iter__",
    ),
    "other-spec": (
        "another dtype or shape",
        "{name} has another dtype or shape: {what}",
        "the model's layers, the size of batches, and settings of precision",
    ),
    "control-flow": (
        "the program takes another path",
        "{what}",
        "what decides how often this runs, and names of layers and parameters",
    ),
    "forward-buffers": (
        "other buffers before the forward",
        "{name} is another one on entry to the forward, with the parameters equal",
        "layers with buffers (normalisation), and code that writes to them",
    ),
    "loss-scale": (
        "the loss scale",
        "{name} of the gradient scaler is another one{value}",
        "the gradient scaler's settings, and which step overflows",
    ),
    "rng": (
        "other random numbers",
        "a generator is in another state: it was seeded otherwise, or more or fewer numbers were drawn",
        "seeds, and what draws: augmentation, dropout, evaluation, the order of calls",
    ),
    "rng-unseeded": (
        "{library} starts in another state",
        "{library}'s generator starts in another state",
        "seeds, and what draws from {library} before the training",
    ),
    "rng-draws": (
        "more or fewer random numbers drawn from {library}",
        "{library}'s generator was equal before and is not any more: more or fewer numbers were drawn",
        "what draws from {library}: augmentation, dropout, evaluation, the order of calls",
    ),
    "unseeded-library": (
        "other content of the same samples",
        "{content} ({name}), and {library}'s generator differs too",
        "augmentation, and what draws from {library}",
    ),
    "hash-seed": (
        "other content of the same samples",
        "{content} ({name}); PYTHONHASHSEED is not set, which orders sets of strings anew",
        "the data set and its files, and sets of strings whose order is used",
    ),
    "forward-operator": (
        "the forward computes otherwise",
        "{name} is another one while parameters, data and random states are equal{value}",
        "the model's forward and the loss",
    ),
    "forward-inputs": (
        "the forward reads or computes otherwise",
        "{name} is another one while parameters are equal{value}; no DataLoader delivers the batches; they go unseen",
        "the data and what is drawn for them, the model's forward and the loss",
    ),
    "backward-operator": (
        "the backward computes otherwise",
        "the gradient{of_name} is another one before any reduction, while the loss is equal",
        "what only the backward sees: functions of autograd's own, hooks, checkpointing, detached branches, scaling",
    ),
    "reduction-order": (
        "the reduction sums otherwise",
        "the reduced gradient{of_name} is another one while the local gradients are equal on all ranks",
        "DDP's options (buckets, hooks), and what averages gradients",
    ),
    "gradient": (
        "backward or reduction compute otherwise",
        "the gradient{of_name} is another one while the loss is equal; local gradients were not recorded",
        "the backward, and what averages gradients",
    ),
    "gradient-processing": (
        "other steps between the reduction and the optimizer",
        "the gradient{of_name} as the optimizer gets it is another one while the reduced gradients are equal",
        "clipping, unscaling and other code between backward and optimizer.step",
    ),
    "optimizer": (
        "the optimizer steps otherwise",
        "{name} is another one after the step while all gradients are equal",
        "the optimizer, its settings (learning rate, weight decay, momentum) and its scheduler",
    ),
    "hyperparameters": (
        "other hyperparameters of the optimizer",
        "{hyperparameter} of the optimizer is another one{value}, and so {name} after the step",
        "the optimizer's settings and its scheduler",
    ),
    "optimizer-state": (
        "the optimizer holds another state",
        "{name} is another one after the step while parameters and gradients are equal{value}",
        "the optimizer, its settings and its scheduler",
    ),
    "buffers": (
        "other buffers",
        "{name} is another one after the step while the parameters are equal",
        "layers with buffers (normalisation), averages, and code that writes to them",
    ),
    "observation": (
        "an observation is another one",
        "{name} ({phase}) is another one while everything before it is equal",
        "what computes it",
    ),
    "other-end": (
        "another end",
        "{name} ends with other bits, and no step that was observed shows where",
        "evaluation, and what changes the model after the last step",
    ),
}

CHANGED: Final[dict[str, Cause]] = {
    cause: Cause(title=title, message=message, advice=_MEANT + where)
    for cause, (title, message, where) in _TEXTS.items()
}
"""One for each cause that two launches of one identity can differ by."""

BY_PHASE: Final = {
    "init": "initialisation",
    "data": "data",
    "rng": "rng",
    "forward": "forward-operator",
    "loss": "forward-operator",
    "grad_local": "backward-operator",
    "grad_reduced": "reduction-order",
    "grad_step": "gradient-processing",
    "param": "optimizer",
    "optimizer": "optimizer-state",
    "buffer": "buffers",
    "scaler": "loss-scale",
}
"""The cause by the phase alone, where names were not kept."""
