from pathlib import Path

import pytest
from omegaconf import OmegaConf

from ddp_repro.config import (
    CheckConfig,
    DataConfig,
    GoldenConfig,
    GoldenLevel,
    Precision,
    RecordConfig,
    TrainConfig,
    load_record_config,
    save_config,
    semantic,
)
from ddp_repro.errors import ReproError
from ddp_repro.validation import validate_launch


def test_a_rank_reads_back_what_the_driver_wrote(tmp_path: Path) -> None:
    config = CheckConfig(
        nproc=3, train=TrainConfig(precision=Precision.bf16, max_steps=7), workload={"_target_": "a.b", "lr": 1e-3}
    )
    save_config(config, tmp_path / "config.yaml")
    read = load_record_config(tmp_path / "config.yaml")
    assert read.nproc == 3
    assert read.train == config.train
    assert read.workload == {"_target_": "a.b", "lr": 1e-3}


@pytest.mark.parametrize("content", ["nproc: [1]", "- a", "nproc: two", "a: {", "nproc: ${nowhere}"])
def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "config.yaml").write_text(content)
    with pytest.raises(ReproError, match=r"config\.yaml"):
        load_record_config(tmp_path / "config.yaml")


def test_operational_keys_are_no_part_of_what_is_compared() -> None:
    one, other = CheckConfig(), CheckConfig(launches=5)
    other.output.dir = "elsewhere"
    other.launcher.timeout_s = 3.0
    other.compare.allow = ["software.torch"]
    other.golden = GoldenConfig(path="goldens", level=GoldenLevel.full, accept=True)
    assert semantic(one) == semantic(other)
    assert semantic(one) != semantic(CheckConfig(data=DataConfig(num_workers=2)))
    assert OmegaConf.create(semantic(one))  # plain types only


@pytest.mark.parametrize(
    ("override", "key"),
    [
        ({"nproc": 0}, "nproc"),
        ({"threads": 0}, "threads"),
        ({"seed": -1}, "seed"),
        ({"train": TrainConfig(epochs=0)}, "train.epochs"),
        ({"train": TrainConfig(max_steps=0)}, "train.max_steps"),
        ({"data": DataConfig(num_workers=-1)}, "data.num_workers"),
        ({"data": DataConfig(persistent_workers=True)}, "data.persistent_workers"),
        ({"level": "bitwise"}, "level"),
    ],
)
def test_impossible_values_are_named(override: dict[str, object], key: str) -> None:
    with pytest.raises(ReproError, match=key):
        validate_launch(RecordConfig(**override))  # type: ignore[arg-type]


def test_the_default_is_possible() -> None:
    validate_launch(RecordConfig())
