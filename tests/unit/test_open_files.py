"""What a script wrote to files that it never closes is on disk before its rank leaves."""

import gzip
import os
import zlib
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.run.open_files import flush_files


def test_what_is_held_back_for_files_is_written(tmp_path: Path) -> None:
    with ExitStack() as open_files:
        files: list[Any] = [
            open_files.enter_context((tmp_path / "a.txt").open("w")),
            open_files.enter_context((tmp_path / "b.bin").open("wb")),
            open_files.enter_context((tmp_path / "c.bin").open("w+b")),
            open_files.enter_context(gzip.open(tmp_path / "d.gz", "wt")),
        ]
        for file, content in zip(files, ("seen", b"seen", b"seen", "seen"), strict=True):
            file.write(content)
        assert [path.stat().st_size for path in sorted(tmp_path.iterdir())][:3] == [0, 0, 0]
        flush_files()
        assert [(tmp_path / name).read_bytes() for name in ("a.txt", "b.bin", "c.bin")] == [b"seen"] * 3
        assert zlib.decompressobj(wbits=31).decompress((tmp_path / "d.gz").read_bytes()) == b"seen"


class Broken(gzip.GzipFile):
    def flush(self, *_: Any) -> None:
        raise RuntimeError("this file cannot be flushed")


def test_a_pipe_is_left_alone_and_a_broken_file_costs_nothing(tmp_path: Path) -> None:
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    with Broken(tmp_path / "a.gz", "wb"), os.fdopen(writable, "w") as pipe, (tmp_path / "b.txt").open("w") as text:
        pipe.write("held back")
        text.write("seen")
        flush_files()
        assert (tmp_path / "b.txt").read_text() == "seen"
        with pytest.raises(BlockingIOError):
            os.read(readable, 1)
    os.close(readable)
