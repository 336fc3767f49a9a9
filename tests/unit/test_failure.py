from ddp_repro.run.failure import is_aftermath, told

DDP_SAYS = (
    "Expected to have finished reduction in the prior iteration before starting a new one. This error indicates that "
    "your module has parameters that were not used in producing loss."
)


def test_unused_parameters_are_told_with_what_to_do() -> None:
    failure = told(RuntimeError(DDP_SAYS))
    assert "took no part in the loss" in failure.text
    assert "find_unused_parameters=True" in failure.hint
    assert "ddp.find_unused_parameters=true" in failure.hint
    assert len(failure.text + failure.hint) < 240  # shown whole in four lines of a report


def test_another_error_is_told_in_one_line() -> None:
    assert told(ValueError("the label 11\nand more")).text == "ValueError: the label 11"
    assert told(KeyboardInterrupt()).text == "KeyboardInterrupt"
    quoted = "Caught ValueError in DataLoader worker 0.\nTraceback (most recent call last):\n  x\nValueError: no"
    assert told(ValueError(quoted)).text == "ValueError: no"


class MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


def test_an_error_without_words_is_told_by_its_type() -> None:
    assert told(MuteError()).text == "MuteError"


def test_what_a_rank_says_that_lost_another_is_known() -> None:
    gloo = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [::1]:4"
    assert is_aftermath(gloo)
    assert is_aftermath("DistBackendError: NCCL communicator was aborted on rank 1.")
    assert not is_aftermath("ValueError: the label 11 is unknown")
    assert not is_aftermath("ConnectionError: no route to the data")
