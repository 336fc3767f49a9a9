"""Handwritten digits: a small convolutional network on real images that ship with the package.

The 1,797 images are the test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI
Machine Learning Repository, CC BY 4.0), as scikit-learn ships them. See NOTICE.
"""

import hashlib
import random
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from ddp_repro.errors import ReproError
from ddp_repro.workload import recipe
from ddp_repro.workload.definition import Workload
from ddp_repro.workload.presets import options_of_size

_FILE = Path(__file__).with_name("digits.npz")
_SHA256 = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
_TRAINED = 1499  # a prime number: no world size and no batch divides it, as real data rarely divide

Images = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@dataclass(kw_only=True, slots=True, frozen=True)
class DigitsOptions:
    """Options of `build`. `shift` is in pixels, `noise` a standard deviation where the ink has 1."""

    width: int
    hidden: int
    batch_size: int
    lr: float
    weight_decay: float = 0.01
    dropout: float = 0.2
    shift: int = 1
    noise: float = 0.05
    clip_norm: float = 1.0


PRESETS = {
    "tiny": DigitsOptions(width=16, hidden=64, batch_size=32, lr=3e-3),
    "small": DigitsOptions(width=32, hidden=128, batch_size=32, lr=3e-3),
    "base": DigitsOptions(width=320, hidden=2720, batch_size=32, lr=1e-3),
}


def build(size: str = "small", **overrides: Any) -> Workload:
    """Return the workload at `size` (tiny, small, base), with fields of `DigitsOptions` overridden."""
    options = options_of_size(PRESETS, size, overrides)
    images, labels = load()
    return Workload(
        model=ConvNet(options),
        loss=loss,
        metric=accuracy,
        better="higher",
        train_data=AugmentedDigits(images[:_TRAINED], labels[:_TRAINED], options),
        eval_data=Digits(images[_TRAINED:], labels[_TRAINED:]),
        batch_size=options.batch_size,
        optimizer=partial(recipe.adamw, lr=options.lr, weight_decay=options.weight_decay),
        scheduler=recipe.cosine,
        clip_norm=options.clip_norm or None,
        data_identity={
            "name": "uci-digits",
            "length": len(images),
            "digest": _SHA256,
            "split": f"train [0, {_TRAINED}), eval [{_TRAINED}, {len(images)})",
        },
    )


def load() -> tuple[Images, Labels]:
    """Return images float32[1797, 8, 8] of 0 to 1 and labels int64[1797]; `ReproError` if the file was altered."""
    try:
        with np.load(_FILE, allow_pickle=False) as stored:
            images, labels = stored["images"], stored["labels"]
    except (OSError, ValueError, KeyError) as error:
        raise ReproError(f"{_FILE} cannot be read: {error}", hint="install ddp_repro again") from error
    if hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest() != _SHA256:
        raise ReproError(f"{_FILE} does not hold the digits that it shipped with", hint="install ddp_repro again")
    return (images / np.float32(16)).astype(np.float32), labels.astype(np.int64)


class Digits(Dataset[tuple[Tensor, int]]):
    """Images as they are: (float32[1, 8, 8], label)."""

    def __init__(self, images: Images, labels: Labels) -> None:
        self._images = images
        self._labels = labels

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.from_numpy(self._images[index][None].copy()), int(self._labels[index])


class AugmentedDigits(Digits):
    """Images shifted, scaled in brightness and noisy, from all three libraries' global generators, as in real code."""

    def __init__(self, images: Images, labels: Labels, options: DigitsOptions) -> None:
        super().__init__(images, labels)
        self._shift = options.shift
        self._noise = options.noise

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        padded = np.pad(self._images[index], self._shift)
        top, left = random.randint(0, 2 * self._shift), random.randint(0, 2 * self._shift)  # noqa: S311 - not secret
        image = padded[top : top + 8, left : left + 8]
        brightness = np.random.uniform(0.8, 1.2)
        noise = self._noise * torch.randn(1, 8, 8)
        return torch.from_numpy(image[None] * np.float32(brightness)) + noise, int(self._labels[index])


class ConvNet(nn.Module):
    """Three convolutions with batch normalisation, then two linear layers with dropout: [B, 1, 8, 8] to [B, 10]."""

    def __init__(self, options: DigitsOptions) -> None:
        super().__init__()
        width = options.width
        self.features = nn.Sequential(
            *_stage(1, width, stride=1), *_stage(width, width, stride=2), *_stage(width, 2 * width, stride=2)
        )
        self.head = nn.Sequential(
            nn.Flatten(),
            nn.Linear(2 * width * 4, options.hidden),
            nn.ReLU(),
            nn.Dropout(options.dropout),
            nn.Linear(options.hidden, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [B, 10] of images [B, 1, 8, 8]."""
        logits: Tensor = self.head(self.features(images))
        return logits


def _stage(inputs: int, outputs: int, *, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
    return [convolution, nn.BatchNorm2d(outputs), nn.ReLU()]


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the mean cross entropy over a batch."""
    images, labels = batch
    return functional.cross_entropy(model(images), labels)


def accuracy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[float, int]:
    """Return how many images of a batch are recognised, and how many there are."""
    images, labels = batch
    return float((model(images).argmax(dim=1) == labels).sum()), len(labels)
