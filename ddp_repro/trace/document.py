"""JSON files: written whole or not at all, read with a message that says what is wrong."""

import json
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Any

from ddp_repro.errors import ReproError


def write_json(path: Path, obj: dict[str, Any]) -> None:
    """Write ``obj`` to ``path`` under a temporary name beside it, then rename it: a reader sees all of it or nothing.

    Raises ``ReproError`` when the file cannot be written; whatever was at ``path`` is then still there.
    """
    write_text(path, json.dumps(obj, indent=2, ensure_ascii=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8 (what it does not have, as escapes), whole or not at all.

    Raises ``ReproError`` as ``write_json`` does.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise ReproError(
            f"cannot write {path}: {error.strerror}", hint="free space or mend the folder, or name another one"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in ``path``. Raises ``ReproError`` when it is missing, unreadable, or holds no JSON object."""
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise ReproError(f"{path} is missing", hint="check the folder that was named") from error
    except OSError as error:
        raise ReproError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    except (ValueError, RecursionError) as error:
        raise ReproError(
            f"{path} is not JSON: {_brief(error)}", hint="it was damaged or cut: record it again"
        ) from error
    if not isinstance(content, dict):
        raise ReproError(f"{path} holds no JSON object", hint="it was damaged: record it again")
    return content


def _brief(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200]
