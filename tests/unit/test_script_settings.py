"""What a script's Hydra resolved: read without resolving anything anew, and judged across ranks."""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from ddp_repro.judge.resolved import resolved_findings
from ddp_repro.run.script_settings import resolved_settings
from tests.unit.synthetic import launch_of

# As hydra.core.utils has it: what main gets is a copy of what was composed.
JOB: dict[str, Any] = {"__name__": "hydra.core.utils"}
exec("def run_job(config, task_cfg, output_dir, main):\n    return main(task_cfg)", JOB)  # noqa: S102


@pytest.fixture(autouse=True)
def resolvers() -> Iterator[None]:
    count = itertools.count()
    OmegaConf.register_new_resolver("drawn", lambda *_: next(count), use_cache=True, replace=True)
    OmegaConf.register_new_resolver("each_time", lambda: next(count), replace=True)
    yield
    OmegaConf.clear_resolver("drawn")
    OmegaConf.clear_resolver("each_time")


def settings(written: dict[str, Any], main: Any = lambda _: None) -> dict[str, dict[str, Any]]:
    def whole(config: DictConfig) -> dict[str, dict[str, Any]]:
        main(config)
        return resolved_settings()

    composed = OmegaConf.create(written)
    found: dict[str, dict[str, Any]] = JOB["run_job"](composed, copy.deepcopy(composed), "/out", whole)
    return found


def test_no_script_under_hydra_has_no_settings() -> None:
    assert resolved_settings() == {}


def test_settings_are_told_as_they_were_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("TOKEN", "secret")
    written = {
        "lr": 0.1,
        "model": {"widths": [4, 5], "act": None, "hydra": 1},
        "seed": "${drawn:}",
        "again": "${seed}",
        "never": "${drawn:a}",
        "wild": "${each_time:}",
        "device": "cuda:${oc.env:LOCAL_RANK}",
        "other": "${device}",
        "token": "${oc.env:TOKEN}",
        "gone": "${nowhere}",
        "run": "run-${now:%H}",
    }
    found = settings(written, lambda config: config.seed)
    config = found["config"]
    assert config["seed"] == config["again"] == 0
    assert (config["never"], config["wild"]) == ("${drawn:a}", "${each_time:}")  # asking would draw
    assert "device" not in config
    assert "other" not in config
    assert "secret" not in str(found)
    assert config["gone"] == "${nowhere}"
    assert {name for name in config if name.startswith("model")} == {
        "model.widths[0]", "model.widths[1]", "model.act", "model.hydra",
    }  # fmt: skip
    assert set(found["places"]) == {"output_dir", "run"}
    assert settings({"a": "${each_time:}"}, lambda config: config.a)["config"]["a"] == "${each_time:}"


def test_what_the_script_wrote_over_is_left_out() -> None:
    def main(config: DictConfig) -> None:
        config.seed += 7
        config.added = 1

    told = settings({"seed": 1, "lr": 2}, main)
    assert told["config"] == {"lr": 2}
    assert set(told["written_over"]) == {"seed", "added"}


def found(
    config: dict[str, list[Any]], places: dict[str, list[Any]] | None = None, written_over: str = ""
) -> list[tuple[Any, ...]]:
    launch = launch_of({rank: [] for rank in range(3)})
    identities = {}
    for rank, identity in launch.identities.items():
        both = {"config": config, "places": places or {}}
        told = {part: {name: values[rank] for name, values in held.items()} for part, held in both.items()}
        told["written_over"] = {written_over: True} if written_over and rank else {}
        identities[rank] = {**identity, "hydra": told}
    findings = resolved_findings(replace(launch, identities=identities))
    return [(one.cause, one.severity, one.ranks, one.name, one.names) for one in findings]


def test_ranks_that_resolved_other_settings_are_found() -> None:
    assert found({"seed": [31, 8, 31], "lr": [1, 1, 1], "a.b": ["x", "x", None]}) == [
        ("config-differs", "error", (1,), "seed", ("seed", "a.b"))
    ]
    assert found({"seed": [31, 8, 5]}) == [("config-differs", "error", (0, 1, 2), "seed", ("seed",))]
    assert found({}, {"output_dir": ["/21-02", "/21-02", "/21-03"]}) == [
        ("folders-differ", "warning", (2,), "output_dir", ("output_dir",))
    ]


@pytest.mark.parametrize("values", [[0, 1, 2], [100, 101, 102], ["cuda:0", "cuda:1", "cuda:2"], [1.5, 1.5, 1.5]])
def test_what_follows_from_the_rank_may_differ(values: list[Any]) -> None:
    assert found({"value": values}) == []


def test_what_some_ranks_wrote_over_may_differ() -> None:
    """Rank 0 adds its number, which is none, and so leaves the setting as it is."""
    assert found({"seed": [3, None, None]}, written_over="seed") == []
    assert found({"seed": [3, None, None]}) != []
