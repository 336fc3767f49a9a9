"""The same training computed in another way: what an optimizer is told, and what it cannot be."""

import pytest
import torch

from ddp_repro.config import OptimizerForm
from ddp_repro.errors import ReproError
from ddp_repro.run.forms import in_form


def parameters() -> list[torch.nn.Parameter]:
    torch.manual_seed(0)
    return [torch.nn.Parameter(torch.randn(5, 3)), torch.nn.Parameter(torch.randn(3))]


@pytest.mark.parametrize("form", list(OptimizerForm))
def test_an_optimizer_steps_in_the_form_it_is_told(form: OptimizerForm) -> None:
    given = parameters()
    optimizer = in_form(torch.optim.AdamW(given, lr=0.1), form)
    built = parameters()
    twin = torch.optim.AdamW(built, lr=0.1, foreach=form is OptimizerForm.foreach, fused=form is OptimizerForm.fused)
    for _ in range(3):
        for a, b in zip(given, built, strict=True):
            a.grad, b.grad = a.detach().sin(), b.detach().sin()
        optimizer.step()
        twin.step()
    assert all(torch.equal(a, b) for a, b in zip(given, built, strict=True))
    for group in optimizer.param_groups:
        assert (group["fused"], group["foreach"]) == (form is OptimizerForm.fused, form is OptimizerForm.foreach)


def test_one_that_has_no_such_form_says_so() -> None:
    with pytest.raises(ReproError, match="RMSprop has no fused form"):
        in_form(torch.optim.RMSprop(parameters()), OptimizerForm.fused)


def test_nothing_asked_for_changes_nothing() -> None:
    optimizer = torch.optim.AdamW(parameters())
    assert in_form(optimizer, None).param_groups[0]["foreach"] is None
    assert in_form(torch.optim.RMSprop(parameters()), OptimizerForm.plain).param_groups[0]["foreach"] is False
