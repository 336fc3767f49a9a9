"""What to write in place of an operator whose sums come in any order."""

from typing import Final

_REPLACEMENTS: Final = (
    (("index_put", "_index_put_impl"), "look rows up by torch.nn.functional.embedding"),
    (("put",), "scatter with distinct indices, or index_copy"),
    (("scatter_add", "scatter_reduce", "index_add", "index_reduce"), "multiply by a one-hot matrix"),
    (("scatter",), "make sure that no index occurs twice"),
    (("embedding_bag",), "torch.nn.functional.embedding and a sum over the bag"),
    (("bincount", "histc", "histogram"), "torch.nn.functional.one_hot(x, n).sum(0), or count integers on the CPU"),
    (("cumsum", "cumprod"), "multiply by a triangular matrix of ones"),
    (("kthvalue", "median", "nanmedian", "mode"), "torch.sort(x, stable=True), and take the element"),
    (("max_unpool",), "torch.nn.functional.interpolate and a mask"),
    (("nll_loss2d",), "torch.nn.functional.cross_entropy of logits flattened to two dimensions"),
    (("_ctc_loss", "ctc_loss"), "compute the loss on the CPU"),
    (("upsample", "grid_sampler"), "mode='nearest' with repeat_interleave, or compute it on the CPU"),
    (("adaptive_avg_pool", "adaptive_max_pool"), "avg_pool or max_pool with a kernel of fixed size"),
    (("fractional_max_pool", "max_pool3d"), "max_pool2d, or unfold and amax"),
    (("reflection_pad", "replication_pad"), "torch.cat of flipped or repeated slices"),
    (("_scaled_dot_product", "_flash_attention", "_efficient_attention"), "sdpa_kernel(SDPBackend.MATH)"),
)  # fmt: skip
"""Beginnings of operators' names, in the order in which they are looked for, and what stands in for them."""


def replacement_of(operator: str) -> str:
    """Return what to use in place of ``aten::index_put``; empty where nothing is known."""
    base = operator.partition("::")[2].partition(".")[0]
    for names, replacement in _REPLACEMENTS:
        if base.startswith(names):
            return replacement
    return ""
