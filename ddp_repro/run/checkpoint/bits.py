"""Moves tensors bit by bit: no kernel that knows numbers touches them, so payloads of NaN and signs of zero stay."""

from typing import Final

import torch

_WORDS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def words(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` seen as whole numbers of its items' size, sharing its memory and its strides."""
    plain = tensor.detach()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return plain.view(_WORDS[plain.element_size()])


def copy_bits(source: torch.Tensor, target: torch.Tensor) -> None:
    """Write the bits of ``source`` into ``target``, of the same shape and dtype; devices may differ."""
    with torch.no_grad():
        words(target).copy_(words(source))


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors on one device have the same dtype, shape and bits."""
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(words(one), words(other))


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Tell whether several elements lie at one place, as after ``expand``: such a tensor cannot be written to."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` as a plain contiguous one on the host; its own memory where that is so already."""
    plain = tensor.detach().as_subclass(torch.Tensor)
    return plain.cpu().resolve_conj().resolve_neg().contiguous()
