"""What the driver says of the size of traces."""

from dataclasses import replace

import pytest

from ddp_repro.config import CaptureConfig, CaptureLevel, RecordConfig
from ddp_repro.observe.window import ROW_BYTES, Room, Window
from ddp_repro.run.estimate import Sizes, size_note

MIB, GIB = 1 << 20, 1 << 30
SIZES = Sizes(step=MIB, steps=400, launches=2, free=100 * GIB)


def test_the_first_step_tells_its_size_once() -> None:
    sizes: list[int] = []
    room = Room(Window(on_size=sizes.append))
    room.end_step()
    for rows in (100, 7):
        room.take(rows)
        room.end_step()
    assert sizes == [100 * ROW_BYTES]


def config(*steps: int, limit_mb: int = 1024) -> RecordConfig:
    return RecordConfig(nproc=3, capture=CaptureConfig(level=CaptureLevel.op, steps=list(steps), limit_mb=limit_mb))


def test_what_is_large_is_told_with_all_that_it_is_made_of() -> None:
    assert size_note(config(), SIZES) == (
        "modules and operators take about 1.0 MiB a step and rank: 2.3 GiB for 400 steps, 3 ranks, launches=2; "
        "100.0 GiB are free; capture.steps narrows it"
    )


def test_a_small_step_that_comes_often_is_large_too() -> None:
    told = size_note(config(), replace(SIZES, step=23_000, steps=20_000))
    assert (told or "").startswith("modules and operators take about 22 KiB a step and rank: 2.6 GiB for 20,000 steps")


@pytest.mark.parametrize(
    ("steps", "sizes", "whole"),
    [
        ((), SIZES, "2.3 GiB for 400 steps"),
        ((10, 59), SIZES, "300.0 MiB for 50 steps"),
        ((10, 20), SIZES, None),
        ((350, 999), SIZES, "300.0 MiB for 50 steps"),
        ((10, 59), replace(SIZES, steps=None), "300.0 MiB for 50 steps"),
        ((), replace(SIZES, steps=None), "6.0 GiB for as many steps as there are, to capture.limit_mb"),
        ((), replace(SIZES, steps=None, step=1000), None),
        ((), replace(SIZES, step=1000), None),
        ((10, 20), replace(SIZES, free=100 * MIB), "66.0 MiB for 11 steps"),
        ((), replace(SIZES, steps=5000), "6.0 GiB for 5,000 steps"),
    ],
)
def test_what_is_not_is_not(steps: tuple[int, ...], sizes: Sizes, whole: str | None) -> None:
    told = size_note(config(*steps), sizes)
    assert (told is None) == (whole is None)
    assert whole is None or f"rank: {whole}, " in (told or "")
