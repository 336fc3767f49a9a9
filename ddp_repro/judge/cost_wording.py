"""A cost in plain sentences: what is larger than the noise, and what is not."""

from collections.abc import Sequence

from ddp_repro.judge.cost import Cost
from ddp_repro.judge.ratios import Ratio
from ddp_repro.judge.wording import listed


def sentence(cost: Cost, confidence: float) -> str:
    """Return what the second arm costs more than the first, in one sentence."""
    if cost.problems or len(cost.lines) < 2:
        return f"nothing could be concluded: {next(iter(cost.problems), 'too few launches ended')}"
    first, second = cost.lines[0], cost.lines[1]
    assert second.ratio is not None
    ratio, percent = second.ratio, f"{confidence * 100:.4g} %"
    times = f"{milliseconds(second.seconds)} against {milliseconds(first.seconds)} ms"
    within = f"{ratio.within.low:.3f} to {ratio.within.high:.3f} at {percent}"
    long = f"a step takes {ratio.ratio:.3f} times as long as with {first.arm} ({within}; {times})"
    if ratio.pairs < ratio.enough:
        return f"what {second.arm} costs cannot be told from noise with {ratio.pairs} launches of each: {long}"
    if not ratio.is_shown:
        return f"what {second.arm} costs is not larger than the noise: {long}"
    if ratio.ratio < 1:
        return f"{second.arm} costs nothing, it is faster by {1 - ratio.ratio:.1%}: {long}"
    return f"{second.arm} costs {ratio.ratio - 1:.1%} of a step: {long}"


def notes(cost: Cost, left_out: Sequence[str], confidence: float) -> list[str]:
    """Return which switch costs what, how small an effect would have been missed, and what was not timed."""
    told = _switches(cost, confidence)
    if len(cost.lines) > 1 and cost.lines[1].ratio is not None:
        within = cost.lines[1].ratio.within
        missed = (within.high / within.low) ** 0.5 - 1
        told.append(
            f"launches of the same thing are apart by {cost.noise:.1%} (standard deviation); a cost below about "
            f"{missed:.1%} would have been missed"
        )
    if left_out:
        told.append(f"{listed(left_out, at_most=8)} act on a GPU alone and were not timed: there is none here")
    return [*told, *_held_otherwise(cost), *_memory(cost)]


def _switches(cost: Cost, confidence: float) -> list[str]:
    """Return which switch alone costs something; none is blamed where all of them together cost nothing that shows.

    Of several intervals some leave out 1 by chance.
    """
    lines = cost.lines[2:]
    shown = [line for line in lines if line.ratio is not None and line.ratio.is_shown]
    if not lines:
        return []
    if not shown:
        return ["no switch alone costs more than the noise"]
    told = listed([f"{line.arm} {told_ratio(line.ratio)}" for line in shown if line.ratio is not None], at_most=8)
    chance = f"chance alone does that with one of {len(lines)} intervals in {1 - confidence ** len(lines):.0%} of runs"
    whole = cost.lines[1]
    if whole.ratio is None or not whole.ratio.is_shown:
        return [
            f"another ratio than 1 has {told}; since {whole.arm} as a whole shows no cost, none is blamed: {chance}"
        ]
    return [f"of the switches alone, another ratio than 1 is shown for {told}; {chance}"]


def _held_otherwise(cost: Cost) -> list[str]:
    first = cost.lines[0].arm if cost.lines else ""
    others = [line for line in cost.lines if line.relative_to != first]
    return [f"{line.arm} acts only with {line.relative_to}: it was timed with it, and is held to it" for line in others]


def _memory(cost: Cost) -> list[str]:
    if len(cost.lines) < 2:
        return []
    first, second = cost.lines[0], cost.lines[1]
    if first.rss_bytes is None or second.rss_bytes is None or first.rss_range is None or second.rss_range is None:
        return ["how much memory the ranks took is unknown here"]
    more = second.rss_bytes - first.rss_bytes
    overlap = first.rss_range[1] >= second.rss_range[0] and second.rss_range[1] >= first.rss_range[0]
    within = ", within what launches of one thing differ by" if overlap else ""
    told = [f"peak memory of a rank: {mebibytes(more, signed=True)} MiB with {second.arm}{within}"]
    if first.gpu_bytes is not None and second.gpu_bytes is not None:
        told.append(f"on the GPU: {mebibytes(second.gpu_bytes - first.gpu_bytes, signed=True)} MiB")
    return told


def told_ratio(ratio: Ratio) -> str:
    """Return "1.12 (1.08 to 1.15)"."""
    return f"{ratio.ratio:.3f} ({ratio.within.low:.3f} to {ratio.within.high:.3f})"


def milliseconds(seconds: float) -> str:
    """Return a time in ms, to three digits or more."""
    value = seconds * 1e3
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}"


def mebibytes(count: float, *, signed: bool = False) -> str:
    """Return bytes in MiB."""
    return f"{count / 2**20:+,.1f}" if signed else f"{count / 2**20:,.0f}"
