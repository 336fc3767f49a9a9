"""Answers `spread`: how far seeds alone move the metric, and whether a candidate is really better."""

if __name__ == "__main__":  # before the other imports: a crash in one of them must not end with 1
    from ddp_repro.entry import enter

    enter("spread")

from dataclasses import dataclass, field, replace
from pathlib import Path

from ddp_repro.cli import Command, run_command
from ddp_repro.config import SpreadConfig, semantic
from ddp_repro.errors import ExitCode, ReproError
from ddp_repro.judge.baseline import Baseline, differing, flat, read_baseline, write_baseline
from ddp_repro.judge.seed_reach import cautions_of, problems_of
from ddp_repro.judge.spread import Conclusion, SpreadRules, judge_spread
from ddp_repro.judge.spread import Trial as Judged
from ddp_repro.measured import identity_told, tell_measured
from ddp_repro.measuring import make_read
from ddp_repro.report.spread_document import Asked, spread_document
from ddp_repro.run.driver import Invocation
from ddp_repro.run.launch import Plan
from ddp_repro.run.metric import Metric
from ddp_repro.run.place import place_run
from ddp_repro.run.spread_validation import validate_spread
from ddp_repro.run.trials import Trial, planned_trials
from ddp_repro.trace.document import read_json
from ddp_repro.trace.layout import RunFolder
from ddp_repro.validation import validate_launch


def spread(config: SpreadConfig, invocation: Invocation) -> ExitCode:
    """Launch the training once with each seed, with a candidate too where there is one; judge, keep and tell."""
    candidate = next((one for one in invocation.twins if isinstance(one, SpreadConfig)), None)
    for one in (config, candidate):
        if one is not None:
            validate_launch(one)
    validate_spread(config, candidate)
    kept = _kept(config)
    folder = place_run(config.output)
    trials = planned_trials(config, candidate, folder)
    values = _Values(config=config, trials=trials, metric=Metric(config.metric, config))
    plan = Plan(folder=folder, config=config, variants=[trial.variant(config.candidate) for trial in trials])
    problems = make_read(plan, invocation, values)
    now = _as_baseline(config, values, folder, invocation)
    barred, notes = ([], []) if kept is None or problems else differing(kept, now, config.compare.allow)
    rules = SpreadRules(
        confidence=config.spread.confidence,
        power=config.spread.power,
        better=values.better,  # type: ignore[arg-type]  # checked where it was read
        baseline=None if kept is None else kept.values,
        expects_candidate=candidate is not None,
    )
    cautions = [] if problems else cautions_of(values.judged, rules)
    problems += [*barred, *problems_of(values.judged, rules)]
    found = judge_spread(values.judged, rules, problems, cautions)
    if found.conclusion is Conclusion.MEASURED and not {"seeds-alike", "metric-constant"} & {c.cause for c in cautions}:
        write_baseline(folder.baseline, now)
    asked = Asked(
        run=folder,
        command=invocation.text,
        metric=values.metric.title,
        candidate=tuple(config.candidate),
        identity=identity_told(folder),
    )
    return tell_measured(spread_document(found, values.judged, rules, asked, notes), folder, config.report)


def _kept(config: SpreadConfig) -> Baseline | None:
    """Return the baseline that is named; raise ReproError where this run could not be held to it."""
    if not config.spread.baseline:
        return None
    kept = read_baseline(Path(config.spread.baseline))
    now = replace(kept, settings=_settings(config), metric=Metric(config.metric, config).title)
    data = {name for name in kept.settings if name.split(".")[0] == "data_identity"}  # known once launched
    known = replace(kept, settings={name: value for name, value in kept.settings.items() if name not in data})
    barred, _ = differing(known, now, config.compare.allow)
    if barred:
        raise ReproError(f"{barred[0]}.", hint="Measure a baseline as this run is, or have it run as the baseline was.")
    return kept


@dataclass(kw_only=True)
class _Values:
    """Reads the metric of each launch."""

    config: SpreadConfig
    trials: list[Trial]
    metric: Metric
    judged: list[Judged] = field(default_factory=list)
    better: str | None = None

    def begin(self, launch: int) -> None:
        """Take note of what is there before the launch."""
        self.metric.begin(self.trials[launch])

    def called(self, launch: int) -> str:
        """Return the seed of the launch."""
        return f"seed {self.trials[launch].seed}"

    def read(self, launch: int) -> None:
        """Read what the launch gave; raise ReproError where there is no metric."""
        trial = self.trials[launch]
        found = self.metric.read(trial)
        self.better = self.config.metric.better.value if self.config.metric.better else found.better
        if self.config.candidate and self.better not in ("higher", "lower"):
            raise ReproError(
                "nothing says which way the metric is better, so no candidate can be called so.",
                hint="Add metric.better=higher or metric.better=lower.",
            )
        self.judged.append(Judged(launch=launch, arm=trial.arm, seed=trial.seed, value=found.value, end=found.end))


def _as_baseline(config: SpreadConfig, values: _Values, folder: RunFolder, invocation: Invocation) -> Baseline:
    first = {trial.seed: trial.value for trial in reversed(values.judged) if trial.arm == "A"}
    seeds = [seed for seed in config.seeds if seed in first]
    identity = read_json(folder.identity) if folder.identity.is_file() else {}
    stack = {group: identity.get(group, {}) for group in ("software", "hardware", "environment")}
    return Baseline(
        metric=values.metric.title,
        seeds=seeds,
        values=[first[seed] for seed in seeds],
        settings={**_settings(config), **flat({"data_identity": identity.get("experiment", {}).get("data")})},
        stack=flat(stack),
        command=invocation.text,
    )


def _settings(config: SpreadConfig) -> dict[str, object]:
    return flat({key: value for key, value in semantic(config).items() if key != "seed"})


def main() -> None:
    """Run as ``python -m ddp_repro.spread``."""
    run_command(Command(name="spread", schema=SpreadConfig, run=spread))
