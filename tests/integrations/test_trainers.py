"""Other people's trainers, run as a user runs them: scripts without a line about this product, at W=3.

Where the group ``integrations`` is not installed, its tests are skipped; ``INTEGRATIONS=1 launch/test.sh`` installs it.
"""

import importlib.util
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import Observation, read_trace
from tests.command import Done, run

pytestmark = [pytest.mark.worlds, pytest.mark.integrations]

SCRIPTS = Path(__file__).parent / "scripts"
RANKS, SAMPLES, STEPS, EPOCHS = 3, 48, 4, 2
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
TRAINERS = ("accelerate", "lightning", "transformers")


def both(*stems: str) -> set[str]:
    return {f"{stem}.{kind}" for stem in stems for kind in ("weight", "bias")}


GPT2 = {"transformer.wte.weight", "transformer.wpe.weight"} | both(
    "transformer.ln_f",
    *(
        f"transformer.h.{layer}.{part}"
        for layer in range(2)
        for part in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj")
    ),
)
BERT = {f"bert.embeddings.{kind}_embeddings.weight" for kind in ("word", "position", "token_type")} | both(
    "bert.embeddings.LayerNorm",
    "bert.pooler.dense",
    "classifier",
    *(
        f"bert.encoder.layer.{layer}.{part}"
        for layer in range(2)
        for part in (
            *(f"attention.self.{kind}" for kind in ("query", "key", "value")),
            *("attention.output.dense", "attention.output.LayerNorm"),
            *("intermediate.dense", "output.dense", "output.LayerNorm"),
        )
    ),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What a script trains, and where its faults have to be placed."""

    script: str
    parameters: set[str]
    loader: str
    """What its training is fed by, as it is called."""
    parts: tuple[str, ...]
    """What a batch holds; the first is what noise gets into."""
    nudged: str
    buffers: set[str] = field(default_factory=set)
    evaluates: str | None = None


SEEDABLE = "SeedableRandomSampler[0]"
NORM = {f"1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
CASES = {
    "accelerate": Case(
        script="accelerated.py",
        parameters=GPT2,
        loader=SEEDABLE,
        parts=(".input_ids", ".labels"),
        nudged="transformer.h.1.mlp.c_fc.bias",
    ),
    "transformers": Case(
        script="hf_trainer.py",
        parameters=BERT,
        loader=SEEDABLE,
        parts=(".input_ids", ".labels"),
        nudged="bert.encoder.layer.1.output.dense.bias",
        buffers={"bert.embeddings.position_ids", "bert.embeddings.token_type_ids"},
        evaluates="SequentialSampler[1]",
    ),
    "fabric": Case(
        script="fabric_loop.py",
        parameters=both("0", "1", "4"),
        loader="DistributedSampler[0]",
        parts=("[0]", "[1]"),
        nudged="4.bias",
        buffers=NORM,
    ),
    "lightning": Case(
        script="lightning_trainer.py",
        parameters=both("net.0", "net.1", "net.4"),
        loader="DistributedSampler[1]",  # its sanity check meets the validation's loader first
        parts=("[0]", "[1]"),
        nudged="net.4.bias",
        buffers={f"net.{name}" for name in NORM},
        evaluates="DistributedSampler[0]",
    ),
}


@pytest.fixture(scope="module", autouse=True)
def offline() -> Iterator[None]:
    missing = [module for module in TRAINERS if importlib.util.find_spec(module) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed: INTEGRATIONS=1 launch/test.sh installs it")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in OFFLINE.items():
            patch.setenv(name, value)
        yield


def checked(name: str, folder: Path, args: str = "", *, launches: int = 2) -> Done:
    """Check a script; a clean one imports what it trains with while it is observed, as it does for a user."""
    script = f"workload.path={SCRIPTS / CASES[name].script}"
    overrides = ["workload=script", script, f"workload.args='{args}'", f"launches={launches}", f"nproc={RANKS}"]
    done = run("check", *overrides, "output.dir=run", cwd=folder, imported=TRAINERS if args else ())
    assert done.verdict is not None, done.stdout + done.stderr
    return done


def rows_of(folder: Path, rank: int) -> list[Observation]:
    trace = read_trace(RunFolder(folder / "run").launch(0).trace(rank))
    assert trace.end == "finished"
    return [trace.observation(row) for row in range(len(trace))]


def seen(rows: list[Observation], phase: str, *, names: str = "") -> Mapping[int, Counter[str]]:
    """Return how often each name was seen in each step of a phase."""
    counts: dict[int, Counter[str]] = {}
    for row in rows:
        if row.phase == phase and row.name.startswith(names):
            counts.setdefault(row.step, Counter())[row.name] += 1
    return counts


def every(names: set[str], times: int = 1) -> dict[int, Counter[str]]:
    return {step: Counter(dict.fromkeys(names, times)) for step in range(STEPS)}


def replicated(rows: list[Observation], phase: str) -> list[tuple[int, str, bytes]]:
    return [(row.step, row.name, row.digest) for row in rows if row.phase == phase and row.spec.endswith(" replicated")]


def first(done: Done) -> tuple[Any, ...]:
    """Return where the first finding is placed."""
    assert done.verdict is not None
    assert (done.code, done.last_line) == (1, "DIVERGED"), done.stdout + done.stderr
    finding = done.verdict["findings"][0]
    return finding["witness"], finding["step"], finding["ranks"], finding["phase"], finding["name"]


@pytest.mark.parametrize("name", CASES)
def test_a_clean_training_is_reproducible_and_seen_whole(name: str, tmp_path: Path) -> None:
    case, done = CASES[name], checked(name, tmp_path)
    assert (done.code, done.last_line) == (0, "REPRODUCIBLE"), done.stdout + done.stderr
    ranks = [rows_of(tmp_path, rank) for rank in range(RANKS)]
    for rows in ranks:
        assert seen(rows, "init") == {-1: Counter(dict.fromkeys(case.parameters | case.buffers, 1))}
        assert seen(rows, "loss") == every({"loss"}, 2)  # two micro-batches a step
        assert seen(rows, "grad_local") == every(case.parameters, 2)
        assert seen(rows, "grad_reduced") == every(case.parameters | {"bucket_layout"})
        for phase in ("grad_step", "param"):
            assert seen(rows, phase) == every(case.parameters)
        states = {f"{parameter}.{key}" for parameter in case.parameters for key in ("exp_avg", "exp_avg_sq", "step")}
        assert all(states | {"group0.lr"} <= names.keys() for names in seen(rows, "optimizer").values())
        assert set().union(*seen(rows, "buffer").values()) == case.buffers
        assert {"python", "numpy", "torch"} <= set().union(*seen(rows, "rng").values())
        assert_batches(rows, case, case.loader)
        if case.evaluates:
            assert_batches(rows, case, case.evaluates)
    for phase in ("init", "grad_reduced", "grad_step", "param"):
        held = [replicated(rows, phase) for rows in ranks]
        assert {told[1] for told in held[0]} >= case.parameters
        assert held[0] == held[1] == held[2]
    assert_shards(ranks, case.loader)


def assert_batches(rows: list[Observation], case: Case, loader: str) -> None:
    batches = [Counter(names) for names in seen(rows, "data", names=f"{loader}.batch").values()]
    counts = sum(batches, Counter())
    assert set(counts) == {f"{loader}.batch{part}" for part in case.parts}
    assert len(set(counts.values())) == 1


def assert_shards(ranks: list[list[Observation]], loader: str) -> None:
    """Assert that each epoch's samples were delivered once, over all ranks, and the second in another order."""
    told = [[row.value for row in rows if row.name == f"{loader}.index"] for rows in ranks]
    half = SAMPLES // RANKS
    for epoch in range(EPOCHS):
        delivered = [index for samples in told for index in samples[epoch * half : (epoch + 1) * half]]
        assert sorted(delivered) == list(range(SAMPLES))  # type: ignore[type-var]
    assert told[0][:half] != told[0][half:]


@pytest.mark.parametrize("name", CASES)
def test_noise_in_the_batches_of_a_rank_is_placed(name: str, tmp_path: Path) -> None:
    case, done = CASES[name], checked(name, tmp_path, "--fault noise")
    assert first(done) == ("launches", 0, [1], "data", f"{case.loader}.batch{case.parts[0]}")
    assert done.verdict is not None
    assert done.verdict["findings"][0]["cause"] == "data-content"


@pytest.mark.parametrize("name", CASES)
def test_a_parameter_that_a_rank_writes_to_is_placed(name: str, tmp_path: Path) -> None:
    case, done = CASES[name], checked(name, tmp_path, "--fault nudge", launches=1)
    assert first(done) == ("ranks", 1, [2], "param", case.nudged)


@pytest.mark.parametrize("name", ["transformers", "lightning"])
def test_a_seed_that_is_not_set_is_placed(name: str, tmp_path: Path) -> None:
    done = checked(name, tmp_path, "--fault unseeded")
    witness, step, ranks, phase, parameter = first(done)
    assert (witness, step, ranks, phase) == ("launches", -1, [0, 1, 2], "init")
    assert parameter in CASES[name].parameters


def test_batches_that_rank_0_fetches_for_all_are_seen_there(tmp_path: Path) -> None:
    done = checked("accelerate", tmp_path, "--dispatch --fault nudge", launches=1)
    case = CASES["accelerate"]
    assert first(done) == ("ranks", 1, [2], "param", case.nudged)
    fetching, *others = [rows_of(tmp_path, rank) for rank in range(RANKS)]
    assert sorted(row.value for row in fetching if row.name == f"{case.loader}.index") == sorted(  # type: ignore[type-var]
        [*range(SAMPLES)] * EPOCHS
    )
    for rows in others:
        assert seen(rows, "data") == {}
        assert seen(rows, "loss") == every({"loss"}, 2)
        assert seen(rows, "grad_local") == every(case.parameters, 2)
