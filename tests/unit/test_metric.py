"""A launch's metric is read where it stands, is the launch's own, and is refused where it is no number."""

import json
import shlex
from pathlib import Path

import pytest

from ddp_repro.config import Better, MetricConfig, RecordConfig, Seeding, SpreadConfig, SpreadOptions, Take
from ddp_repro.errors import ReproError
from ddp_repro.run.metric import Metric, validate_metric
from ddp_repro.run.spread_validation import validate_spread
from ddp_repro.run.trials import Trial, planned_trials, seeded
from ddp_repro.trace.layout import LaunchFolder, RunFolder

SCRIPT = {"path": "train.py", "args": "--seed {seed} --log {out}/m.jsonl '{\"lr\": 1}'"}


@pytest.fixture
def trial(tmp_path: Path) -> Trial:
    return made(tmp_path, 0)


def made(path: Path, number: int) -> Trial:
    folder = LaunchFolder(path / f"launch-{number}")
    folder.path.mkdir()
    config = RecordConfig(nproc=2, workload=dict(SCRIPT))
    return Trial(arm="A", seed=number + 7, launch=number, folder=folder, config=config)


def metric(trial: Trial, **options: object) -> Metric:
    config = MetricConfig(**options)  # type: ignore[arg-type]
    validate_metric(config, trial.config)
    return Metric(config, trial.config)


def test_the_last_match_in_the_log_of_a_rank_counts(trial: Trial) -> None:
    trial.folder.log(0).write_text("epoch 0 acc=0.5\nepoch 1 acc=0.75 loss=1e-3\nacc=oops\n")
    assert metric(trial, regex="acc=([0-9.]+)").read(trial).value == 0.75
    assert metric(trial, regex=r"acc=([0-9.]+)", take=Take.min).read(trial).value == 0.5
    assert metric(trial, regex=r"^epoch \d (?:acc=(.*?) )|nothing(x)").read(trial).value == 0.75
    assert metric(trial, regex=r"loss=(\S+)").read(trial).value == 1e-3


@pytest.mark.parametrize(
    ("regex", "told"),
    [
        ("accuracy=([0-9.]+)", "finds nothing in what rank 0 printed in launch 0 (seed 7)"),
        ("acc=(.*)", "finds 'high', which is no number"),
        ("f1=(.*)", "is nan"),
        ("mse=(.*)", "is inf"),
    ],
)
def test_what_is_no_number_is_refused(trial: Trial, regex: str, told: str) -> None:
    trial.folder.log(0).write_text("acc=high\nf1=nan\nmse=inf\n")
    with pytest.raises(ReproError) as refused:
        metric(trial, regex=regex).read(trial)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("printed", "regex", "told"),
    [
        ("loss=0.5\nloss=nan\n", "loss=([0-9.]+)", "passes over 'nan' in 'loss=nan'"),
        ("loss=0.5\nloss=-Infinity, \n", "loss=([0-9.]+)", "passes over '-Infinity'"),
        ("loss: 0.5\nloss:  -0.25\n", "loss: ([0-9.]+)", "passes over '-0.25'"),
        ("loss=nan\n", "loss=([0-9.]+)", "passes over 'nan'"),
        ("epoch 3 loss=1.559e-06 lr=1\n", "loss=([0-9.]+)", "takes '1.559' of '1.559e-06'"),
        ("loss=2,345.5\n", "loss=([0-9]+)", "takes '2' of '2,345.5'"),
        ("loss=0.75\n", "loss.*([0-9.]+)", "takes '5' of '0.75'"),
        ("loss=-0.5\n", "loss=-?([0-9.]+)", "takes '0.5' of '-0.5'"),
        ("loss=0.5\nloss=nan\n", "(?:loss|val_loss)=([0-9.]+)", "passes over 'nan' in 'loss=nan'"),
        ("a|loss=0.5\na|loss=nan\n", r"(?:a\|(?:loss|l))=([0-9.]+)", "passes over 'nan'"),
    ],
)
def test_a_pattern_that_takes_a_part_or_passes_over_a_number_is_refused(
    trial: Trial, printed: str, regex: str, told: str
) -> None:
    trial.folder.log(0).write_text(printed)
    with pytest.raises(ReproError) as refused:
        metric(trial, regex=regex).read(trial)
    assert told in str(refused.value)
    assert "\\S+" in refused.value.hint


@pytest.mark.parametrize(
    ("printed", "regex", "value"),
    [
        ("loss=0.5, acc=75.\n", r"acc=(\d+)", 75.0),
        ("loss=-1.5e-3;\n", r"loss=([^;]+)", -1.5e-3),
        ("loss=nan\nloss=0.5\n", "loss=([0-9.]+)", 0.5),
        ("loss is low\nloss=0.5s\nloss fell\n", "loss=?([0-9.]+)", 0.5),
        ("12:30:01 [1/10] acc 0.5% (best 0.7)\n", r"acc ([0-9.]+)%", 0.5),
        ("0.25\n", "^([0-9.]+)$", 0.25),
        ("a(1)=0.5 [x] =0.7\n", r"a\(1\)=([0-9.]+)", 0.5),
        ("[x](=0.5\n", r"[[(x]+\](?:\()=([0-9.]+)", 0.5),
        ("loss=12,34 acc=5\n", r"loss=(\d+),", 12.0),
        ("loss=0.5,0.25\n", r"loss=([0-9.]+)", 0.5),
        ("loss=2, 5\n", r"loss=(\d+)", 2.0),
        ("loss=0.5\nval=nan\n", r"loss=([0-9.]+)|val=(x)", 0.5),
    ],
)
def test_what_stands_beside_a_number_is_no_part_of_it(trial: Trial, printed: str, regex: str, value: float) -> None:
    trial.folder.log(0).write_text(printed)
    assert metric(trial, regex=regex).read(trial).value == value


@pytest.mark.parametrize(("printed", "taken"), [("0,7705", "0"), ("-12,5", "-12"), ("1,5e3", "1")])
def test_a_decimal_comma_is_refused(trial: Trial, printed: str, taken: str) -> None:
    trial.folder.log(0).write_text(f"loss={printed}\n")
    with pytest.raises(ReproError) as refused:
        metric(trial, regex="loss=([-0-9.]+)").read(trial)
    assert f"takes '{taken}' of '{printed.removesuffix('e3')}'" in str(refused.value)
    assert "decimal point" in refused.value.hint


def test_a_number_that_is_passed_over_early_counts_only_where_all_values_do(trial: Trial) -> None:
    trial.folder.log(0).write_text("acc=nan\nacc=0.5\n")
    assert metric(trial, regex="acc=([0-9.]+)").read(trial).value == 0.5
    with pytest.raises(ReproError, match="passes over 'nan'"):
        metric(trial, regex="acc=([0-9.]+)", take=Take.max).read(trial)


@pytest.mark.parametrize("last", ["null", '"n/a"', "NaN", "true", "nan", "-inf", "[0.5]", "0.", "tensor(0.5)"])
def test_a_line_of_json_whose_value_is_no_number_is_no_epoch_less(trial: Trial, last: str) -> None:
    (trial.folder.path / "m.jsonl").write_text(f'{{"acc": 0.5}}\n{{"acc": {last}}}\n{{"lr": 1}}\n')
    with pytest.raises(ReproError, match="is nan"):
        metric(trial, jsonl="{out}/m.jsonl", key="acc").read(trial)


def test_the_rank_that_printed_it_is_named(trial: Trial) -> None:
    trial.folder.log(1).write_text("acc=0.5\n")
    with pytest.raises(ReproError) as refused:
        metric(trial, regex="acc=(.*)").read(trial)
    assert "metric.rank=1" in refused.value.hint
    assert metric(trial, regex="acc=(.*)", rank=1).read(trial).value == 0.5


def test_an_early_nan_counts_only_where_all_values_do(trial: Trial) -> None:
    trial.folder.log(0).write_text("acc=nan\nacc=0.5\n")
    assert metric(trial, regex="acc=(.*)").read(trial).value == 0.5
    with pytest.raises(ReproError, match="is nan"):
        metric(trial, regex="acc=(.*)", take=Take.max).read(trial)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "nothing says where"),
        ({"regex": "acc=[0-9]+"}, "has no group"),
        ({"regex": "acc=(["}, "is no regular expression"),
        ({"regex": "(a)", "jsonl": "x", "key": "y"}, "are both given"),
        ({"jsonl": "x"}, "go together"),
        ({"tag": "x"}, "go together"),
        ({"regex": "(a)", "rank": 2}, "metric.rank=2"),
    ],
)
def test_a_metric_that_cannot_be_read_is_refused_before_anything_is_launched(
    trial: Trial, options: dict[str, object], told: str
) -> None:
    with pytest.raises(ReproError, match=r".*") as refused:
        metric(trial, **options)
    assert told in str(refused.value)


def test_lines_of_json_that_a_launch_wrote_to_a_file_of_its_own(trial: Trial) -> None:
    source = metric(trial, jsonl="{out}/m.jsonl", key="val.acc")
    source.begin(trial)
    lines = ['{"val": {"acc": 0.5}}', "no json", '{"val": {"acc": 0.6}, "step": 3}', '{"val.acc": 0.7}', '{"val": {"a']
    (trial.folder.path / "m.jsonl").write_text("\n".join(lines))
    assert source.read(trial).value == 0.7
    with pytest.raises(ReproError) as refused:
        metric(trial, jsonl="{out}/m.jsonl", key="accuracy").read(trial)
    assert "Its keys are: step, val, val.acc" in refused.value.hint


def test_a_file_that_launches_share_holds_what_each_of_them_appended(tmp_path: Path) -> None:
    shared = tmp_path / "log.jsonl"
    for number, how in enumerate(("append", "append", "rewrite", "nothing", "touch")):
        trial = made(tmp_path, number)
        source = metric(trial, jsonl=str(shared), key="acc")
        source.begin(trial)
        before = shared.read_text() if shared.exists() else ""
        line = json.dumps({"acc": number / 10}) + "\n"
        if how in ("append", "rewrite"):
            shared.write_text((before if how == "append" else "") + line)
            assert source.read(trial).value == number / 10
        else:
            if how == "touch":
                shared.touch()
            with pytest.raises(ReproError, match="there is no new line of JSON"):
                source.read(trial)


def test_tensorboards_scalars(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  only there with TensorBoard

    for number in range(2):
        trial = made(tmp_path, number)
        source = metric(trial, tensorboard=str(tmp_path / "events"), tag="val/acc")
        source.begin(trial)
        with SummaryWriter(str(tmp_path / "events")) as writer:
            for step in range(3):
                writer.add_scalar("val/acc", number + step / 8, step, new_style=bool(number))
        assert source.read(trial).value == number + 0.25
    with pytest.raises(ReproError) as refused:
        metric(trial, tensorboard=str(tmp_path / "events"), tag="acc").read(trial)
    assert "val/acc" in refused.value.hint


def test_tensorboard_that_is_not_there_is_said(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.backend.event_processing.event_accumulator", None)
    with pytest.raises(ReproError, match="needs TensorBoard"):
        metric(trial, tensorboard="x", tag="y").begin(trial)


def test_what_is_known_of_the_end_of_training(trial: Trial) -> None:
    final = {"validation": [{"epoch": 0.0, "metric": 0.25}, {"epoch": 1.0, "metric": 0.5}], "better": "lower"}
    built_in = Trial(arm="A", seed=1, launch=0, folder=trial.folder, config=RecordConfig(workload={"_target_": "a.b"}))
    with pytest.raises(ReproError, match="told no result of validation"):
        metric(built_in).read(built_in)
    trial.folder.final(0).write_text(json.dumps(final))
    found = metric(built_in).read(built_in)
    assert (found.value, found.better, found.end) == (0.5, "lower", None)
    ends = []
    for digest in ("aa", "bb", "aa"):
        trial.folder.final(0).write_text(json.dumps({**final, "param": {"w": digest}, "buffer": {}}))
        ends.append(metric(built_in).read(built_in).end)
    assert ends[0] == ends[2] != ends[1]
    assert None not in ends


def test_a_seed_reaches_a_script_where_its_place_is_and_nothing_else_moves(tmp_path: Path) -> None:
    config = SpreadConfig(seeds=[3, 9], seeding=Seeding.leave, workload=dict(SCRIPT), spread=SpreadOptions(repeats=1))
    config.launcher.env = {"SEED": "{seed}", "KEEP": "{x}"}
    trials = planned_trials(config, None, RunFolder(tmp_path))
    assert [(trial.seed, trial.launch) for trial in trials] == [(3, 0), (9, 1)]
    own = trials[1].config
    out = tmp_path.resolve() / "launch-1"
    assert shlex.split(own.workload["args"]) == ["--seed", "9", "--log", f"{out}/m.jsonl", '{"lr": 1}']
    assert own.launcher.env == {"SEED": "9", "KEEP": "{x}"}
    assert own.seed == 0  # the script is left to seed itself
    assert config.workload["args"] == SCRIPT["args"]
    injected = SpreadConfig(seeds=[9], workload={"path": "train.py"}, seeding=Seeding.inject)
    assert seeded(injected, 9, LaunchFolder(tmp_path / "launch-0")).seed == 9


def test_arms_take_turns_with_the_same_seeds_and_the_first_seed_comes_again(tmp_path: Path) -> None:
    config = SpreadConfig(seeds=[1, 2], workload={"_target_": "a.b"}, spread=SpreadOptions(repeats=3))
    trials = planned_trials(config, config, RunFolder(tmp_path))
    assert [(trial.arm, trial.seed) for trial in trials] == [
        ("A", 1), ("B", 1), ("A", 2), ("B", 2), ("A", 1), ("A", 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": [1]}, "one seed shows no spread"),
        ({"seeds": []}, "no seed shows no spread"),
        ({"seeds": [1, 2, 1]}, "seeds names 1 twice"),
        ({"seeds": [1, -2]}, "seeds holds -2"),
        ({"seed": 4}, "seed=4 does nothing here"),
        ({"spread": SpreadOptions(repeats=0)}, "spread.repeats=0"),
        ({"spread": SpreadOptions(confidence=95)}, "spread.confidence=95"),
        ({"workload": {"path": "train.py", "args": "--lr 1"}}, "nothing tells the script its seed"),
        ({"candidate": ["a=1"], "spread": SpreadOptions(baseline="x")}, "are both given"),
    ],
)
def test_seeds_that_show_nothing_are_refused_before_anything_is_launched(changes: dict[str, object], told: str) -> None:
    base: dict[str, object] = {
        "seeds": [1, 2, 3],
        "workload": {"path": "train.py", "args": "{seed}"},
        "metric": MetricConfig(regex="(a)"),
        "seeding": Seeding.leave,
    }
    with pytest.raises(ReproError) as refused:
        validate_spread(SpreadConfig(**{**base, **changes}), None)  # type: ignore[arg-type]
    assert told in str(refused.value)


def test_what_a_candidate_may_not_change_and_what_must_be_known_of_its_metric() -> None:
    base = {"seeds": [1, 2, 3], "workload": {"path": "train.py", "args": "{seed}"}}
    config = SpreadConfig(**base, metric=MetricConfig(regex="(a)"))  # type: ignore[arg-type]
    with pytest.raises(ReproError, match="which way the script's metric is better"):
        validate_spread(config, config)
    known = SpreadConfig(**base, metric=MetricConfig(regex="(a)", better=Better.lower))  # type: ignore[arg-type]
    validate_spread(known, known)
    with pytest.raises(ReproError, match="the candidate changes metric"):
        validate_spread(known, config)
