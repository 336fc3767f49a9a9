"""Whether all ranks of a script resolved the same configuration."""

from collections.abc import Iterator, Mapping
from typing import Any

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.identity import differing_on_ranks
from ddp_repro.judge.majority import outside_majority
from ddp_repro.judge.wording import listed, told_by_rank
from ddp_repro.trace.launch import Launch

_GROUP = "hydra"


def resolved_findings(launch: Launch) -> list[Finding]:
    """Return an error for settings that the ranks resolved differently, and a warning for names and folders.

    A setting that follows from the rank (it is the rank, a text with its number in it, or one number more on each), or
    that the script itself wrote over on some rank, is meant to differ.
    """
    found = []
    for part, cause in (("config", "config-differs"), ("places", "folders-differ")):
        differing = {
            name.removeprefix(f"{part}."): values
            for name, values in _differing(launch)
            if name.startswith(f"{part}.") and not _follows_rank(values)
        }
        if differing:
            found.append(_finding(launch, cause, differing))
    return found


def _differing(launch: Launch) -> Iterator[tuple[str, Mapping[int, Any]]]:
    differing = differing_on_ranks(launch, _GROUP)
    groups = (identity.get(_GROUP) for identity in launch.identities.values())
    written_over = {name for group in groups if isinstance(group, Mapping) for name in group.get("written_over", ())}
    for name, values in differing.items():
        part, _, setting = name.removeprefix(f"{_GROUP}.").partition(".")
        if setting not in written_over:
            yield f"{part}.{setting}", values


def _follows_rank(values: Mapping[int, Any]) -> bool:
    if all(type(value) is int for value in values.values()):
        return len({value - rank for rank, value in values.items()}) == 1
    if all(type(value) is str for value in values.values()):
        return len({value.replace(str(rank), "") for rank, value in values.items()}) == 1
    return False


def _finding(launch: Launch, cause: str, differing: Mapping[str, Mapping[int, Any]]) -> Finding:
    first = next(iter(differing))
    place = Place(
        witness="invariants",
        severity="error" if cause == "config-differs" else "warning",
        launches=(launch.index,),
        ranks=outside_majority({rank: repr(value) for rank, value in differing[first].items()})[0],
        name=first,
        names=tuple(differing),
    )
    told = (f"{name} {told_by_rank(values)}" for name, values in differing.items())
    return finding(cause, place, {"fields": listed(told)})
