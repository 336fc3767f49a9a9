"""How is told of goldens which code they were made by, and which fields of an identity moved."""

from collections.abc import Mapping, Sequence
from typing import Any

from ddp_repro.judge.findings import FieldDifference
from ddp_repro.judge.identity import in_words
from ddp_repro.judge.wording import listed

_SHOWN = 10


def moved_told(moved: Sequence[FieldDifference]) -> str:
    """Return "seed 0 against 1" for each field, of the golden and now."""
    return listed(in_words(one, (0, 1)) for one in moved)


def code_told(golden: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what is known of both codes, as the end of a sentence; empty where nothing is known."""
    if golden == now:
        return f"; both are of {_commit(now)}" if now.get("git_commit") else ""
    return f"; it was made at {_commit(golden)}, and this is {_commit(now)}"


def since_told(golden: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return " since commit 0123456789 (now 9876543210)", empty where both are the same."""
    return "" if golden == now else f" since {_commit(golden)} (now {_commit(now)})"


def _commit(code: Mapping[str, Any]) -> str:
    commit, source = code.get("git_commit"), code.get("workload_source")
    if commit:
        return f"commit {str(commit)[:_SHOWN]}" + (" with uncommitted changes" if code.get("git_diff") else "")
    return f"source {str(source)[:_SHOWN]}" if source else "an unknown commit"
