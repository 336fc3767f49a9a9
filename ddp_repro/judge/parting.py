"""Whether a launch that still runs differs already, by the very rules that it will be judged by."""

from dataclasses import replace

from ddp_repro.judge.judgement import Rules, judge
from ddp_repro.trace.launch import Launch, Parting


def parting_of(reference: Launch, launch: Launch, rules: Rules) -> Parting | None:
    """Return the first difference of ``launch``, of which there is only the beginning, from a whole one.

    ``None`` where the judge finds none so far, and where it would not judge these launches at all.
    """
    judgement = judge([reference, launch], replace(rules, expected=None))
    if judgement.problems:
        return None
    for found in judgement.findings:
        is_between = found.witness in ("launches", "twins") and set(found.launches) == {reference.index, launch.index}
        if is_between and found.severity == "error" and found.step is not None:
            return Parting(
                reference=reference.index, step=found.step, ranks=found.ranks, phase=found.phase, name=found.name
            )
    return None
