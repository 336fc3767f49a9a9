"""Files that go from one node to another in pieces, and are taken only whole."""

import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import xxhash

from ddp_repro.errors import ReproError
from ddp_repro.run.nodes.frames import PIECE

_CHUNK: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A file that a node holds: its name, its size in bytes, and the XXH3-128 of its content where that was asked."""

    name: str
    size: int
    digest: str = ""

    @classmethod
    def read(cls, told: dict[str, Any]) -> Self:
        """Return what another node told; raises ReproError for a name that would lead out of a folder."""
        name = str(told["name"])
        if Path(name).name != name or name.startswith("."):
            raise ReproError(f"a node holds a file of the name {name!r}, which is not taken.")
        return cls(name=name, size=int(told["size"]), digest=str(told["digest"]))


def held_files(folder: Path, *, with_digest: bool) -> list[Held]:
    """Return the files in ``folder``, temporary ones left out."""
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    return [
        Held(name=file.name, size=file.stat().st_size, digest=digest_of(file) if with_digest else "") for file in files
    ]


def digest_of(file: Path) -> str:
    """Return the XXH3-128 of a file's content, in hex."""
    digest = xxhash.xxh3_128()
    with file.open("rb") as content:
        while chunk := content.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def piece_of(file: Path, offset: int) -> bytes:
    """Return at most ``PIECE`` bytes of a file, from ``offset``."""
    with file.open("rb") as content:
        content.seek(offset)
        return content.read(PIECE)


def is_there(folder: Path, held: Held) -> bool:
    """Tell whether the file lies in this node's ``folder`` too; opened, so that a network file system looks anew."""
    with suppress(OSError), (folder / held.name).open("rb") as content:
        return content.seek(0, 2) == held.size
    return False


class Arriving:
    """A file under way, under a name beside its own."""

    def __init__(self, folder: Path, held: Held) -> None:
        self._held = held
        self._file = folder / held.name
        self._temporary = folder / f".{held.name}.{secrets.token_hex(4)}.tmp"
        self._digest = xxhash.xxh3_128()
        self._content = self._temporary.open("wb")
        self.size = 0

    @property
    def is_complete(self) -> bool:
        """Tell whether all of it came."""
        return self.size >= self._held.size

    def add(self, piece: bytes) -> None:
        """Take the next piece; one that is empty would never end."""
        if not piece:
            raise ReproError(f"{self._held.name} became shorter while it was sent.")
        self._content.write(piece)
        self._digest.update(piece)
        self.size += len(piece)

    def keep(self) -> None:
        """Give the file its name; raises ReproError where it is not what the other node holds."""
        self._content.close()
        if self._digest.hexdigest() != self._held.digest:
            raise ReproError(f"{self._held.name} came in another content than it was sent in.")
        self._temporary.replace(self._file)

    def drop(self) -> None:
        """Leave nothing of what did not become a file."""
        self._content.close()
        with suppress(OSError):
            self._temporary.unlink(missing_ok=True)
