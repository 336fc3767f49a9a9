"""Whether launches, and the ranks of one launch, are of the same identity, and which fields differ."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import FieldDifference, Finding, Variant
from ddp_repro.judge.wording import listed, numbered
from ddp_repro.trace.identity import COMPARED
from ddp_repro.trace.launch import Launch

WORLD_SIZE: Final = "experiment.world_size"
WORLD_SIZE_INVARIANT: Final = "world-size-invariant"
_FOLLOWS_WORLD_SIZE: Final = (WORLD_SIZE, "experiment.ranks_per_node", "experiment.nodes", "experiment.placement")
_LABELS_WITHOUT: Final = ("experiment.config.", "experiment.", "software.", "hardware.", "environment.variables.")
_ABSENT: Final = object()
_SHOWN: Final = 8


def fields_of(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the compared fields of an identity by dotted name; lists are values."""
    return {name: value for group in COMPARED for name, value in _flat(group, identity.get(group, {}))}


def compare_identities(
    launches: Sequence[Launch], allow: Sequence[str], level: str, variants: Sequence[Variant] = ()
) -> list[FieldDifference]:
    """Return every field that differs between the launches on a rank that they share, with what is allowed marked.

    Differences that several ranks show alike are told once, allowed only where all of them are.
    """
    differences: dict[str, FieldDifference] = {}
    ranks = sorted({rank for launch in launches for rank in launch.identities})
    for rank in ranks:
        sharing = [launch for launch in launches if rank in launch.identities]
        fields = [fields_of(launch.identities[rank]) for launch in sharing]
        for name in _differing(fields):
            values = [_value_in(launch, rank, name) for launch in launches]
            by_launch = {launch.index: value for launch, value in zip(launches, values, strict=True)}
            is_allowed = _is_allowed(name, allow, level) or _is_moved(name, by_launch, variants)
            known = differences.setdefault(name, FieldDifference(field=name, values=values, allowed=is_allowed))
            if known.allowed and not is_allowed:
                differences[name] = FieldDifference(field=name, values=values)
    return [differences[name] for name in sorted(differences, key=_by_weight)]


def _is_moved(name: str, values: Mapping[int, Any], variants: Sequence[Variant]) -> bool:
    """Return whether a field differs only between variants, and only where one of the two overrides it."""
    if name == WORLD_SIZE or not variants:
        return False
    held = [(variant, [values[launch] for launch in variant.launches if launch in values]) for variant in variants]
    held = [(variant, found) for variant, found in held if found]
    if any(not _same(value, found[0]) for _, found in held for value in found):
        return False
    return all(
        _same(found[0], others[0]) or any(_covers(pattern, name) for pattern in (*one.allow, *other.allow))
        for place, (one, found) in enumerate(held)
        for other, others in held[place + 1 :]
    )


def unused_allowances(launches: Sequence[Launch], allow: Sequence[str]) -> list[str]:
    """Return the allow patterns that name no field of any identity."""
    names = {name for launch in launches for identity in launch.identities.values() for name in fields_of(identity)}
    return [pattern for pattern in allow if not any(_covers(pattern, name) for name in names)]


def differing_on_ranks(launch: Launch, group: str) -> dict[str, dict[int, Any]]:
    """Return the fields of ``group`` that are not the same on all ranks of a launch, each with its value by rank."""
    fields = {rank: dict(_flat(group, identity.get(group, {}))) for rank, identity in launch.identities.items()}
    return {
        name: {rank: found.get(name) for rank, found in sorted(fields.items())}
        for name in _differing(list(fields.values()))
    }


def refused(differences: Sequence[FieldDifference]) -> list[FieldDifference]:
    """Return what is not allowed to differ, without what differs only because the world size does."""
    found = [difference for difference in differences if not difference.allowed]
    if not any(difference.field == WORLD_SIZE for difference in found):
        return found
    return [one for one in found if one.field == WORLD_SIZE or one.field not in _FOLLOWS_WORLD_SIZE]


def refusal_findings(launches: Sequence[Launch], differences: Sequence[FieldDifference]) -> list[Finding]:
    """Return a finding where the identities differ in what they may not; empty where they do not."""
    found = refused(differences)
    if not found:
        return []
    numbers = [launch.index for launch in launches]
    place = Place(
        witness="identity",
        launches=tuple(numbers),
        name=found[0].field,
        names=tuple(difference.field for difference in found),
    )
    told = listed(in_words(difference, numbers) for difference in found)
    return [finding("not-comparable", place, {"fields": told})]


def in_words(difference: FieldDifference, launches: Sequence[int]) -> str:
    """Return "world size 2 against 4"; with three launches or more, which launches have which value is said."""
    groups: list[tuple[Any, list[int]]] = []
    for launch, value in zip(launches, difference.values, strict=True):
        same = next((numbers for known, numbers in groups if _same(known, value)), None)
        if same is None:
            groups.append((value, [launch]))
        else:
            same.append(launch)
    with_launches = len(launches) > 2
    texts = [_shown(value) + (f" ({numbered('launch', group)})" if with_launches else "") for value, group in groups]
    return f"{label(difference.field)} {' against '.join(texts)}"


def label(name: str) -> str:
    """Return how a dotted field is called in a sentence: ``experiment.world_size`` is "world size"."""
    for prefix in _LABELS_WITHOUT:
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            return rest.replace("_", " ") if prefix == "experiment." and "." not in rest else rest
    return name


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in value:
            yield from _flat(f"{name}.{key}", value[key])
    else:
        yield name, value


def _differing(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    names = {name: None for found in fields for name in found}
    return [
        name
        for name in names
        if any(not _same(fields[0].get(name, _ABSENT), found.get(name, _ABSENT)) for found in fields[1:])
    ]


def _same(a: Any, b: Any) -> bool:
    """Compare as JSON does: ``1`` and ``True`` and ``1.0`` are not the same value; NaN is the same as NaN."""
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)


def _value_in(launch: Launch, rank: int, name: str) -> Any:
    return fields_of(launch.identities[rank]).get(name) if rank in launch.identities else None


def _is_allowed(name: str, allow: Sequence[str], level: str) -> bool:
    if level == WORLD_SIZE_INVARIANT and name in _FOLLOWS_WORLD_SIZE:
        return True
    return is_named(name, allow)


def is_named(name: str, allow: Sequence[str]) -> bool:
    """Tell whether a field (dotted) is one of those that may differ; world size never is."""
    return name != WORLD_SIZE and any(_covers(pattern, name) for pattern in allow)


def _covers(pattern: str, name: str) -> bool:
    pattern = pattern.removesuffix(".*")
    return name == pattern or name.startswith(f"{pattern}.")


def _by_weight(name: str) -> tuple[int, int, str]:
    """Order world size first, then by group, then by name."""
    return (name != WORLD_SIZE, COMPARED.index(name.partition(".")[0]), name)


def _shown(value: Any) -> str:
    if value is None:
        return "unset"
    if not isinstance(value, list):
        return str(value)
    return f"[{', '.join(map(str, value[:_SHOWN]))}{', …' if len(value) > _SHOWN else ''}]"
