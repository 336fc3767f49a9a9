"""What torch's own documentation says of an operator's deterministic form."""

from ddp_repro.observe.deterministic_list import entries, said_of


def test_both_lists_are_read() -> None:
    assert {entry.effect.split()[0] for entry in entries()} == {"will", "has"}
    assert len(entries()) > 20  # torch 2.13: 48


def test_an_operator_goes_by_its_name_there() -> None:
    assert any(
        "accumulate=True" in told and "will act deterministically" in told for told in said_of("aten::index_put")
    )
    assert any("has no deterministic form" in told for told in said_of("aten::avg_pool3d_backward"))
    assert said_of("aten::cumsum")


def test_nothing_is_said_of_others() -> None:
    assert said_of("aten::addmm") == []
    assert said_of("planted::noisy") == []
