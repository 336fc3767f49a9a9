"""English text: a small causal transformer over bytes, with a position bias that is looked up by index.

The text is the Python language reference that CPython ships as ``pydoc_data.topics``, so its content depends on the
Python version; the digest in the data identity tells.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from ddp_repro.errors import ReproError
from ddp_repro.workload import recipe
from ddp_repro.workload.definition import Workload
from ddp_repro.workload.presets import options_of_size

_BYTES = 256
_EVAL_SHARE = 10  # the last tenth is for validation


@dataclass(kw_only=True, slots=True, frozen=True)
class TextOptions:
    """Options of `build`. `context` and `reach` are in bytes, `corruption` is the share of input bytes replaced.

    The backward of the position bias differs between launches (with 2 threads or more, and nothing done against it)
    from ``context * context * heads`` = 32,768 on; every preset is well above.
    """

    width: int
    depth: int
    heads: int
    context: int
    batch_size: int
    lr: float
    reach: int = 64
    weight_decay: float = 0.01
    dropout: float = 0.1
    corruption: float = 0.02
    clip_norm: float = 1.0


PRESETS = {
    "tiny": TextOptions(width=32, depth=1, heads=8, context=128, batch_size=2, lr=3e-3),
    "small": TextOptions(width=64, depth=2, heads=8, context=128, batch_size=8, lr=3e-3),
    "base": TextOptions(width=320, depth=8, heads=16, context=64, batch_size=4, lr=5e-4),
}


def build(size: str = "small", **overrides: Any) -> Workload:
    """Return the workload at `size` (tiny, small, base), with fields of `TextOptions` overridden."""
    options = options_of_size(PRESETS, size, overrides)
    if options.width % options.heads:
        raise ReproError(
            f"workload.width={options.width} does not divide by workload.heads={options.heads}",
            hint=f"try workload.width={options.heads * 16}",
        )
    text = load()
    split = len(text) - len(text) // _EVAL_SHARE
    return Workload(
        model=Transformer(options),
        loss=loss,
        metric=accuracy,
        better="higher",
        train_data=AugmentedWindows(text[:split], options),
        eval_data=Windows(text[split:], options.context),
        batch_size=options.batch_size,
        optimizer=partial(recipe.adamw, lr=options.lr, weight_decay=options.weight_decay),
        scheduler=recipe.cosine,
        clip_norm=options.clip_norm or None,
        data_identity={
            "name": "pydoc_data.topics",
            "length": len(text),
            "digest": hashlib.sha256(text.numpy().tobytes()).hexdigest(),
            "split": f"train [0, {split}), eval [{split}, {len(text)})",
        },
    )


def load() -> Tensor:
    """Return the text as uint8[bytes]; `ReproError` if this Python ships without it."""
    try:
        topics: dict[str, str] = import_module("pydoc_data.topics").topics
    except ImportError as error:
        raise ReproError(
            "this Python ships without pydoc_data.topics, the text that workload=text trains on",
            hint="use workload=digits, or a Python with its whole standard library",
        ) from error
    joined = "\n".join(topics[name] for name in sorted(topics))
    return torch.frombuffer(bytearray(joined.encode()), dtype=torch.uint8)


class Windows(Dataset[tuple[Tensor, Tensor]]):
    """The text in windows that follow each other: (inputs int64[context], the bytes after each int64[context])."""

    def __init__(self, text: Tensor, context: int) -> None:
        self._text = text
        self._context = context

    def __len__(self) -> int:
        # One window less than there are, so that an augmented one can begin anywhere in its own.
        return len(self._text) // self._context - 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._window(index * self._context)

    def _window(self, start: int) -> tuple[Tensor, Tensor]:
        window = self._text[start : start + self._context + 1].long()
        return window[:-1], window[1:]


class AugmentedWindows(Windows):
    """Windows that begin at a random byte of their own, with some input bytes replaced by others."""

    def __init__(self, text: Tensor, options: TextOptions) -> None:
        super().__init__(text, options.context)
        self._corruption = options.corruption

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        offset = random.randrange(self._context)  # noqa: S311 - not secret
        inputs, targets = self._window(index * self._context + offset)
        replaced = torch.rand(self._context) < self._corruption
        return torch.where(replaced, torch.randint(_BYTES, (self._context,)), inputs), targets


class Attention(nn.Module):
    """Causal self-attention whose scores get a learned bias for each distance and head."""

    def __init__(self, options: TextOptions) -> None:
        super().__init__()
        self.heads = options.heads
        self.table = nn.Parameter(torch.randn(options.reach, options.heads) * 0.02)
        self.inputs = nn.Linear(options.width, 3 * options.width)
        self.output = nn.Linear(options.width, options.width)

    def forward(self, hidden: Tensor, index: Tensor) -> Tensor:
        """Return [B, T, width] of `hidden` [B, T, width]; `index` int64[T, T] holds the distances."""
        batch, length, width = hidden.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.inputs(hidden).reshape(shape).permute(2, 0, 3, 1, 4)
        # As T5 and Swin look it up. With two threads the backward adds to the table's rows in whatever order comes.
        bias = self.table[index]
        # Heads stay last: were they first, each thread would get heads of its own, and no race.
        scores = (query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5).permute(0, 2, 3, 1) + bias
        future = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)[..., None]
        weights = scores.masked_fill(future, float("-inf")).softmax(dim=2).permute(0, 3, 1, 2)
        mixed: Tensor = self.output((weights @ value).transpose(1, 2).reshape(batch, length, width))
        return mixed


class Block(nn.Module):
    """Attention and a two-layer network, each normalised before, dropped out and added after."""

    def __init__(self, options: TextOptions) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(options.width)
        self.attention = Attention(options)
        self.norm_network = nn.LayerNorm(options.width)
        self.network = nn.Sequential(
            nn.Linear(options.width, 4 * options.width), nn.GELU(), nn.Linear(4 * options.width, options.width)
        )
        self.dropout = nn.Dropout(options.dropout)

    def forward(self, hidden: Tensor, index: Tensor) -> Tensor:
        """Return [B, T, width] of `hidden` [B, T, width]; `index` int64[T, T] holds the distances."""
        hidden = hidden + self.dropout(self.attention(self.norm_attention(hidden), index))
        added: Tensor = hidden + self.dropout(self.network(self.norm_network(hidden)))
        return added


class Transformer(nn.Module):
    """Bytes int64[B, T] to logits of the byte after each, [B, T, 256]."""

    def __init__(self, options: TextOptions) -> None:
        super().__init__()
        self.reach = options.reach
        self.embedding = nn.Embedding(_BYTES, options.width)
        self.blocks = nn.ModuleList(Block(options) for _ in range(options.depth))
        self.norm = nn.LayerNorm(options.width)
        self.logits = nn.Linear(options.width, _BYTES)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits [B, T, 256] of `inputs` int64[B, T]."""
        place = torch.arange(inputs.shape[1], device=inputs.device)
        index = (place[:, None] - place[None, :]).clamp(0, self.reach - 1)
        hidden = self.embedding(inputs)
        for block in self.blocks:
            hidden = block(hidden, index)
        logits: Tensor = self.logits(self.norm(hidden))
        return logits


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean cross entropy of a batch, in nats a byte."""
    inputs, targets = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())


def accuracy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[float, int]:
    """Return how many bytes of a batch are predicted, and how many there are."""
    inputs, targets = batch
    return float((model(inputs).argmax(dim=-1) == targets).sum()), targets.numel()
