"""Where the code came from: told in every report, never a reason to refuse a comparison."""

import hashlib
import importlib.metadata
import importlib.util
import subprocess
from pathlib import Path
from typing import Any

from ddp_repro.config import RecordConfig, is_script
from ddp_repro.workload.script import read_script


def code_provenance(config: RecordConfig) -> dict[str, Any]:
    """Return the git commit, the digest of the uncommitted diff, of the workload's source, and all distributions."""
    return {
        "git_commit": _git("rev-parse", "HEAD"),
        "git_diff": _digest(_git("diff", "HEAD")),
        **_source(config),
        "distributions": sorted(f"{d.name}=={d.version}" for d in importlib.metadata.distributions()),
    }


def _source(config: RecordConfig) -> dict[str, Any]:
    if not is_script(config):
        return {"workload_source": _source_digest(str(config.workload.get("_target_", "")))}
    source = read_script(config.workload).source()
    digest = hashlib.sha256(source.read_bytes()).hexdigest() if source is not None and source.is_file() else None
    return {"workload_source": digest, "script": str(source) if source is not None else None}


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], capture_output=True, check=True, timeout=30, text=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    return done.stdout.strip()


def _digest(text: str | None) -> str | None:
    return hashlib.sha256(text.encode()).hexdigest() if text else None


def _source_digest(target: str) -> str | None:
    module = target.rpartition(".")[0]
    spec = importlib.util.find_spec(module) if module else None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()
