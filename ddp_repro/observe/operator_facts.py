"""Digests over all that an operator reads or makes, as one fact: specs, and 16 bytes."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from ddp_repro.observe.digest import bytes_digest, observation
from ddp_repro.observe.torch_internals import default_generator

Fact = tuple[str, bytes]
"""The specs of the tensors, and the digest over all parts."""


def fact_of(values: Iterable[Any], generator: torch.Generator | None = None) -> Fact:
    """Return the fact of tensors and plain values; with ``generator``, its state is one of them."""
    specs, parts = [], []
    for value in values:
        if isinstance(value, torch.Tensor):
            spec, digest = tensor_fact(value)
            specs.append(spec)
            parts.append(digest)
        else:
            parts.append(_plain(value))
    if generator is not None:
        parts.append(observation(generator.get_state())[1])
    return ", ".join(specs), bytes_digest(b"\0".join(parts), "operator")


def tensor_fact(tensor: torch.Tensor) -> Fact:
    """Return spec and digest of a tensor; of one that lies dense in memory, without a copy whatever its strides.

    The digest of two tensors is comparable where they are strided alike, as those of one operator in two launches are.
    """
    if tensor.layout is torch.strided and not tensor.is_contiguous() and tensor.dim() > 1:
        strides = tensor.stride()
        order = sorted(range(tensor.dim()), key=lambda dim: (-strides[dim], dim))
        with torch.no_grad():
            dense = tensor.detach().permute(order)
        if dense.is_contiguous():
            return observation(dense)[0].text, observation(dense)[1]
    spec, digest = observation(tensor)
    return spec.text, digest


def generator_of(values: Sequence[Any], kwargs: dict[str, Any]) -> torch.Generator | None:
    """Return the generator that a drawing operator draws from; ``None`` where it is not known."""
    given = next((value for value in (*values, *kwargs.values()) if isinstance(value, torch.Generator)), None)
    if given is not None:
        return given
    device = next((value.device for value in values if isinstance(value, torch.Tensor)), kwargs.get("device"))
    return default_generator(device)


def _plain(value: Any) -> bytes:
    if isinstance(value, (torch.Generator, torch.ScriptObject)) or callable(value):
        return type(value).__name__.encode()
    return repr(value).encode("utf-8", "surrogatepass")
