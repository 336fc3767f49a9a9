import os

import pytest

from ddp_repro.run.progress import VARIABLE, LineReader, Message, ProgressPipe, encode


def test_messages_survive_any_cutting_of_the_stream() -> None:
    sent = [Message(rank=0, event="started"), Message(rank=3, event="error", text='a "b"\nc', hint="d")]
    stream = b"".join(map(encode, sent))
    for cut in range(len(stream) + 1):
        reader = LineReader()
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == sent


def test_a_stray_write_is_dropped_and_the_rest_is_read() -> None:
    stream = b"noise from a library\n{}\n[1]\n" + encode(Message(rank=1, event="step", step=4))
    assert LineReader().feed(stream) == [Message(rank=1, event="step", step=4)]


def test_a_full_pipe_does_not_block_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    read_fd, write_fd = os.pipe()
    monkeypatch.setenv(VARIABLE, str(write_fd))
    pipe = ProgressPipe(0)
    assert VARIABLE not in os.environ  # the rank's own children must not inherit it
    for step in range(5000):
        pipe.send("step", step=step)
    assert LineReader().feed(os.read(read_fd, 1 << 10))[0] == Message(rank=0, event="step", step=0)
    os.close(read_fd)
    pipe.send("step", step=1)
    os.close(write_fd)


def test_a_long_error_stays_one_write() -> None:
    read_fd, write_fd = os.pipe()
    os.environ[VARIABLE] = str(write_fd)
    ProgressPipe(2).send("error", text="é" * 10_000, hint="h" * 10_000)
    line = os.read(read_fd, 1 << 16)
    os.close(read_fd)
    os.close(write_fd)
    assert len(line) <= 4096
    assert line.endswith(b"}\n")
    assert LineReader().feed(line)[0].text.startswith("éé")
