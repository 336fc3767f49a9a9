"""However a saving process dies, the last whole checkpoint stands and nothing else is taken for one.

A process that saves one checkpoint after the other is killed at each call that touches the disk, and at random moments.
"""

import ctypes
import errno
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import safetensors
import torch
from torch import nn

from ddp_repro import Progress, ReproError, load_checkpoint, save_checkpoint
from ddp_repro.run.checkpoint import folder


def training(fill: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Linear(64, 64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(fill)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.full_like(parameter, -fill)
    return model, optimizer


def save(root: Path, step: int) -> Path:
    """Save a training whose every number is its step."""
    model, optimizer = training(float(step))
    now = Progress(step=step, epoch=0, position=step)
    return save_checkpoint(root, model=model, optimizer=optimizer, progress=now, extra={"step": step})


def loaded(root: Path) -> int:
    """Load the newest whole checkpoint, assert that it is of one step throughout, and return that."""
    model, optimizer = training(-1.0)
    restored = load_checkpoint(root, model=model, optimizer=optimizer)
    step = restored.progress.step
    assert restored.values == {"step": step}
    for parameter in model.parameters():
        assert bool((parameter == step).all())
        assert bool((optimizer.state[parameter]["momentum_buffer"] == -step).all())
    return step


def in_child(action: Callable[[], Any]) -> int:
    """Run ``action`` in a fork that ends without any clean-up, and return how it ended."""
    child = os.fork()
    if not child:
        try:
            action()
        except BaseException:  # noqa: BLE001  told by the exit code
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class Dying:
    """A call to the disk before (or after) which the process dies, the ``at``-th time that any of them is made."""

    def __init__(self, at: int, *, after: bool) -> None:
        self.left, self.after = at, after

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def dying(*args: Any, **kwargs: Any) -> Any:
            self.left -= 1
            if self.left < 0 and not self.after:
                os._exit(9)
            result = call(*args, **kwargs)
            if self.left < 0:
                os._exit(9)
            return result

        return dying


def save_and_die(root: Path, step: int, dying: Dying) -> None:
    targets: list[tuple[Any, str]] = [(safetensors, "serialize_file"), (folder, "_exchange"), (Path, "write_bytes")]
    targets += [(os, name) for name in ("fsync", "rename", "mkdir", "rmdir", "unlink")]
    targets += [(Path, name) for name in ("rename", "mkdir")]
    with mock.patch.multiple(folder, discard=dying.around(folder.discard)):
        for owner, name in targets:
            setattr(owner, name, dying.around(getattr(owner, name)))
        save(root, step)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_dying_at_any_call_to_the_disk(quick_path: Path, after: bool, again: bool) -> None:
    """``again``: a checkpoint of that step is there already, and is replaced."""
    survived = False
    for at in range(100):
        root = quick_path / str(at)
        save(root, 1)
        save(root, 2)
        step = 2 if again else 3
        code = in_child(lambda at=at, root=root, step=step: save_and_die(root, step, Dying(at, after=after)))  # type: ignore[misc]
        assert code in {0, 9}
        assert loaded(root) in {2, step}
        if code == 0:
            survived = True
            break
        save(root, 4)
        assert loaded(root) == 4
        assert not [path for path in root.iterdir() if path.name.startswith(".")]
    assert survived
    assert at > 12  # as many moments were tried


def save_for_ever(root: Path, first: int) -> None:
    torch.set_num_threads(1)
    for step in range(first, first + 100_000):
        save(root, step)


def test_being_killed_at_any_moment(quick_path: Path) -> None:
    draw = random.Random(5)
    newest = 0
    for _ in range(25):
        child = os.fork()
        if not child:
            save_for_ever(quick_path, newest + 1)
            os._exit(0)
        time.sleep(draw.uniform(0.0, 0.15))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        published = [step for path in folder.checkpoints_in(quick_path) if (step := folder.step_of(path)) is not None]
        if not published:
            continue
        found = loaded(quick_path)
        assert found == max(published)  # what has its name is whole
        assert found >= newest
        newest = found
    assert newest > 5


@pytest.fixture
def small_disk(quick_path: Path) -> Iterator[Path]:
    disk = quick_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can only be mounted as root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def refusal(root: Path, step: int) -> str:
    """Save; return why that was refused, or nothing."""
    try:
        save(root, step)
    except ReproError as error:
        return str(error)
    return ""


def test_a_full_disk(small_disk: Path) -> None:
    root = small_disk / "checkpoints"
    save(root, 1)
    filler = small_disk / "filler"
    size = 0
    for left in range(0, 120_000, 9_000):  # at another file each time
        free = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
        filler.write_bytes(b"x" * max(free - left, 0))
        told = refusal(root, 2)
        if not told:
            break
        assert told.endswith("No space left on device")
        size += 1
        assert loaded(root) == 1
        assert [path.name for path in root.iterdir()] == ["step-00000001"]
        filler.unlink()
    assert size >= 3
    assert loaded(root) == 2


def test_a_folder_that_cannot_be_written(quick_path: Path) -> None:
    (quick_path / "file").write_text("")
    with pytest.raises(ReproError, match=r"cannot write .*Not a directory") as caught:
        save(quick_path / "file" / "root", 1)
    assert "name another one" in caught.value.hint


def test_a_file_system_that_cannot_swap_folders(quick_path: Path) -> None:
    save(quick_path, 1)

    def refused(*_: object) -> int:
        ctypes.set_errno(errno.EINVAL)
        return -1

    with (
        mock.patch("ctypes.CDLL", return_value=mock.Mock(renameat2=refused)),
        pytest.raises(ReproError, match="cannot swap two folders"),
    ):
        save(quick_path, 1)
    assert loaded(quick_path) == 1
    assert [path.name for path in quick_path.iterdir()] == ["step-00000001"]
