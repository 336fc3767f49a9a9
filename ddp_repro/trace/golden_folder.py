"""A folder of goldens: one file for each identity, so that several software stacks or GPUs lie side by side."""

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ddp_repro.errors import ReproError
from ddp_repro.trace.golden import Golden, golden_bytes, read_golden

_ENDING: Final = ".arrows"
_OBTAINED: Final = ".obtained.arrows"
_KEY: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What a folder of goldens holds: the goldens by file, and one sentence on each file that cannot be read."""

    goldens: Mapping[Path, Golden] = field(default_factory=dict)
    unreadable: Mapping[Path, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GoldenFolder:
    """The files of a folder of goldens; it need not be there yet."""

    path: Path

    def file(self, key: str) -> Path:
        """Return the golden of an identity."""
        return self.path / f"{key[:_KEY]}{_ENDING}"

    def obtained(self, golden: Path) -> Path:
        """Return what is kept beside a golden that does not fit."""
        return golden.with_name(golden.name.removesuffix(_ENDING) + _OBTAINED)

    def entries(self) -> Entries:
        """Read every golden; what cannot be read, the folder itself or a file of it, is said."""
        goldens, unreadable = dict[Path, Golden](), dict[Path, str]()
        try:
            files = self.files()
        except ReproError as error:
            return Entries(unreadable={self.path: str(error)})
        for file in files:
            try:
                goldens[file] = read_golden(file)
            except ReproError as error:
                unreadable[file] = str(error)
        return Entries(goldens=goldens, unreadable=unreadable)

    def files(self) -> list[Path]:
        """Return the goldens. Raises ``ReproError`` where the folder is none, or cannot be listed."""
        try:
            found = sorted(self.path.iterdir())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise ReproError(
                f"golden.path={self.path} is no folder that can be read: {error.strerror}",
                hint="name a folder, which need not be there yet: golden.path=tests/goldens/training",
            ) from error
        return [file for file in found if file.name.endswith(_ENDING) and not _is_other(file.name)]


def _is_other(name: str) -> bool:
    """Return whether a file is what was obtained, or is being written."""
    return name.endswith(_OBTAINED) or name.startswith(".")


def write_golden(path: Path, golden: Golden, *, over: bool) -> None:
    """Write a golden, whole or not at all; only with ``over`` where there is one already.

    Raises ``ReproError`` where it cannot be written, or another process wrote one meanwhile.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            file.write(golden_bytes(golden))
            file.flush()
            os.fsync(file.fileno())
        if over:
            temporary.replace(path)
        else:
            _place(temporary, path)
    except OSError as error:
        reason = "another process wrote one meanwhile" if isinstance(error, FileExistsError) else error.strerror
        raise ReproError(f"cannot write {path}: {reason}", hint="mend the folder, or name another one") from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _place(temporary: Path, path: Path) -> None:
    """Give a file its name, unless something has it; file systems without links cannot tell in one step."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:
        if path.exists():
            raise FileExistsError(path) from None
        temporary.replace(path)
