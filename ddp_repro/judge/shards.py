"""Whether the ranks' shards of a pass are disjoint and complete."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ddp_repro.judge.causes import Place, finding
from ddp_repro.judge.findings import Finding
from ddp_repro.judge.passes import Pass
from ddp_repro.judge.sharing import Sharing, shared
from ddp_repro.judge.sharing_plans import plan_of, planned_finding
from ddp_repro.judge.wording import counted, listed, numbered


def shard_findings(launch: int, passes: Sequence[Pass], world_size: int) -> tuple[list[Finding], list[str]]:
    """Return what is wrong with the shards of a launch (one finding a loader), and notes on what is harmless."""
    findings: list[Finding] = []
    notes: dict[str, None] = {}
    for loader, groups in _by_loader(passes).items():
        sharings = []
        for group in groups:
            sharing = shared(group, world_size)
            if isinstance(sharing, Sharing):
                sharings.append(sharing)
            elif sharing:
                notes[f"{loader}: {sharing}"] = None
        looks = (_broken, planned_finding, _padded_evaluation)
        found = [look(launch, loader, sharings) for look in looks]
        findings += [one for one in found if one is not None]
        notes |= dict.fromkeys(_harmless(loader, sharings))
    return findings, list(notes)


def _by_loader(passes: Sequence[Pass]) -> Mapping[str, list[list[Pass]]]:
    """Return for each loader its sharded passes, those of all ranks with the same number together."""
    groups: dict[str, dict[int, list[Pass]]] = defaultdict(lambda: defaultdict(list))
    for one in passes:
        if (one.fact("num_replicas") or 1) > 1 and one.clear and one.number >= 0:
            groups[one.loader][one.number].append(one)
    return {loader: [numbers[number] for number in sorted(numbers)] for loader, numbers in groups.items()}


def _broken(launch: int, loader: str, sharings: Sequence[Sharing]) -> Finding | None:
    broken = [sharing for sharing in sharings if sharing.is_broken and not plan_of(loader, sharing)]
    if not broken:
        return None
    first = broken[0]
    ranks, reason = _suspects(first)
    counts = [f"{counted(first.twice, 'sample')} delivered twice"] if first.twice else []
    counts.append(
        f"{counted(first.never, 'sample')} of {first.shards[0].fact('length'):,} never" if first.never else ""
    )
    more = len(broken) - 1
    place = Place(
        witness="invariants",
        launches=(launch,),
        step=min(shard.step for shard in first.shards),
        ranks=ranks,
        phase="data",
        name=f"{loader}.index",
    )
    gaps = {
        "loader": loader,
        "pass": str(first.shards[0].number),
        "counts": listed(counts),
        "reason": f" ({reason})" if reason else "",
    }
    return finding("shards-overlap", place, gaps, detail=f"the same in {counted(more, 'later pass')}" if more else "")


def _suspects(sharing: Sharing) -> tuple[tuple[int, ...], str]:
    """Return the ranks concerned and what their samplers say of the reason."""
    shards = sharing.shards
    ranks = tuple(shard.rank for shard in shards)
    epochs = Counter(shard.fact("epoch") for shard in shards)
    if len(epochs) > 1:
        (usual, count), *_ = epochs.most_common()
        odd = tuple(shard.rank for shard in shards if shard.fact("epoch") != usual)
        told = listed(f"{epoch} on {count}" for epoch, count in epochs.items())
        return (odd if 2 * count > len(shards) else ranks), f"the samplers' epochs differ: {told} of the ranks"
    places = Counter(shard.fact("sampler_rank") for shard in shards)
    if None not in places and len(places) < len(shards):
        twice = [place for place, count in places.items() if count > 1]
        odd = tuple(shard.rank for shard in shards if shard.fact("sampler_rank") in twice)
        return odd, f"{numbered('rank', odd)} take the same shard"
    length = shards[0].fact("length")
    if length is not None and all(len(shard.samples) >= length for shard in shards):
        return ranks, "every rank delivers every sample"
    if sharing.twice and any(shard.fact("shuffle") == 1 for shard in shards):
        return ranks, "the ranks shuffle differently: is the sampler seeded by rank?"
    return ranks, ""


def _padded_evaluation(launch: int, loader: str, sharings: Sequence[Sharing]) -> Finding | None:
    padded = [sharing for sharing in sharings if sharing.is_evaluation and sharing.twice and not sharing.is_broken]
    if not padded:
        return None
    first = padded[0]
    place = Place(
        witness="invariants",
        severity="warning",
        launches=(launch,),
        step=first.shards[0].step,
        ranks=tuple(shard.rank for shard in first.shards),
        phase="data",
        name=f"{loader}.index",
    )
    counts = f"{counted(first.twice, 'sample')} {'is' if first.twice == 1 else 'are'} delivered twice"
    return finding(
        "evaluation-padding", place, {"loader": loader, "pass": str(first.shards[0].number), "counts": counts}
    )


def _harmless(loader: str, sharings: Sequence[Sharing]) -> list[str]:
    clean = [sharing for sharing in sharings if not sharing.is_broken]
    padded = [sharing.twice for sharing in clean if sharing.twice and not sharing.is_evaluation]
    missed = [sharing.never for sharing in clean if sharing.never]
    notes = []
    if padded:
        notes.append(f"{loader}: {counted(max(padded), 'sample')} a pass delivered twice to fill up the shards")
    if missed:
        notes.append(f"{loader}: {counted(max(missed), 'sample')} a pass left out with incomplete shards or batches")
    return notes
