"""The seal that every batch of a trace carries, by which damage is noticed before a byte is decoded.

A bare Arrow stream reads most flipped bits as other data, and a stream that was cut between two batches reads
without an error. So each record batch carries, in the custom metadata of its message, the number of rows so far and
the XXH3-128 of *every byte of the file up to the end of this batch* (schema, dictionaries, padding and frames
included; the 32 characters of the digest itself count as zeros). One running hash makes it a chain: nothing can be
changed, dropped, repeated or moved. Because it covers bytes as stored, hostile ones never reach a decompressor.

The first group of a file (schema and an empty batch) is sealed in the same way in all schema versions, so that a
newer trace is told from a damaged one.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import xxhash
from pyarrow import ipc

SEAL_KEY: Final = "seal"
_SEAL: Final = re.compile(rb"rows=([0-9]{16}) xxh3-128=")
_HEX: Final = 32
_ZEROS: Final = b"0" * _HEX
_FRAME: Final = 8  # continuation marker and length before each message
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def seal_text(rows: int, digest: str) -> str:
    """Return a seal: the rows up to the end of its batch, and the 32 hexadecimal digits of the digest."""
    return f"rows={rows:016d} xxh3-128={digest}"


class Sealer:
    """The writer's side: fills in the digest of each group of messages."""

    def __init__(self) -> None:
        self._running = xxhash.xxh3_128()

    def seal(self, group: bytearray, placeholder: bytes) -> None:
        """Replace ``placeholder`` (32 bytes that stand once in ``group``) by the digest, in place."""
        at = group.find(placeholder)
        assert at >= 0, "the batch was written without its seal"
        group[at : at + _HEX] = _ZEROS
        self._running.update(group)
        group[at : at + _HEX] = self._running.hexdigest().encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Intact:
    """What of a file is as it was written.

    ``size`` bytes (whole sealed groups; 0 where not even the first one is) that hold ``rows`` rows. ``ended`` tells
    whether the end-of-stream marker, and nothing else, follows; ``torn`` whether anything else follows.
    """

    size: int
    rows: int
    ended: bool
    torn: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A batch and the messages before it, which are intact: bytes ``start`` to ``end`` of the data that was given.

    ``rows`` are those of the file up to its end, ``labels`` the bytes of its schema and dictionaries.
    """

    start: int
    end: int
    rows: int
    labels: tuple[slice, ...]


class Unsealer:
    """The reader's side, for a file that is read in pieces: checks the seal of each group of messages."""

    def __init__(self) -> None:
        self._running = xxhash.xxh3_128()

    def groups(self, data: pa.Buffer) -> Iterator[Group]:
        """Yield the groups at the beginning of ``data``, up to the first that is not whole or not intact.

        ``data`` goes on where the last group that was yielded ended.
        """
        view = memoryview(data)
        source = pa.BufferReader(data)
        messages = ipc.MessageReader.open_stream(source)
        begin = start = 0
        labels: list[slice] = []
        while (message := _next_message(messages)) is not None:
            end = source.tell()
            if message.type == "record batch":
                seal = _SEAL.search(bytes(view[start : min(start + _FRAME + message.metadata.size, end)]))
                if seal is None or not self._matches(view[begin:end], start - begin + seal.end()):
                    return
                yield Group(start=begin, end=end, rows=int(seal[1]), labels=tuple(labels))
                begin, labels = end, []
            else:
                labels.append(slice(start, end))
            start = end

    def _matches(self, group: memoryview, at: int) -> bool:
        running = self._running.copy()
        running.update(group[:at])
        running.update(_ZEROS)
        running.update(group[at + _HEX :])
        if bytes(group[at : at + _HEX]) != running.hexdigest().encode():
            return False
        self._running = running
        return True


def intact_prefix(data: pa.Buffer) -> Intact:
    """Return how far ``data``, the bytes of a file, is intact. Never raises, whatever the bytes are."""
    size = rows = 0
    for group in Unsealer().groups(data):
        size, rows = group.end, group.rows
    rest = bytes(memoryview(data)[size : size + len(END_OF_STREAM) + 1])
    ended = rest == END_OF_STREAM
    return Intact(size=size, rows=rows, ended=ended, torn=bool(rest) and not ended)


def _next_message(messages: ipc.MessageReader) -> ipc.Message | None:
    try:
        return messages.read_next_message()
    except (StopIteration, pa.ArrowException, OSError, ValueError):
        return None
