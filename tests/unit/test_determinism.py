import os
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from omegaconf import OmegaConf

import ddp_repro
from ddp_repro.conf_dir import CONF_DIR
from ddp_repro.errors import ReproError
from ddp_repro.run import determinism, start, switches
from ddp_repro.run.determinism import Determinism, DeterministicAlgorithms, from_mapping, load_profile

PROFILES = ("prod", "debug", "survey", "leave")
NAMES = [field.name for field in fields(Determinism)]


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    before = switches.read_all()
    workspace = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    yield
    for name, value in before.items():
        if name not in ("cublas_workspace", "hash_seed"):
            switches.write(name, value)
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)
    if workspace is not None:
        os.environ["CUBLAS_WORKSPACE_CONFIG"] = workspace


def test_the_profiles_are_there() -> None:
    assert set(PROFILES) <= {path.stem for path in (CONF_DIR / "determinism").glob("*.yaml")}


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_names_every_switch(profile: str) -> None:
    assert list(OmegaConf.load(CONF_DIR / "determinism" / f"{profile}.yaml")) == NAMES


@pytest.mark.parametrize("profile", PROFILES)
def test_a_profile_is_in_force_once_applied(profile: str) -> None:
    in_force = ddp_repro.apply_determinism(profile, hash_seed=None)
    wanted = determinism.wanted(load_profile(profile, hash_seed=None))
    assert {name: in_force[name] for name in wanted} == wanted
    assert list(in_force) == NAMES


def test_debug_really_sets_torch() -> None:
    ddp_repro.apply_determinism("debug", hash_seed=None)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    assert torch.backends.cudnn.deterministic
    assert not torch.backends.cudnn.benchmark
    assert not torch.backends.cuda.matmul.allow_tf32
    assert torch.isnan(torch.empty(8)).all(), "uninitialised memory is not filled"
    ddp_repro.apply_determinism("survey", hash_seed=None)
    assert torch.is_deterministic_algorithms_warn_only_enabled()
    ddp_repro.apply_determinism("prod", hash_seed=None)
    assert not torch.are_deterministic_algorithms_enabled()
    assert torch.backends.cudnn.benchmark


def test_leave_moves_nothing() -> None:
    before = switches.read_all()
    assert ddp_repro.apply_determinism("leave") == before


def test_one_switch_moves_alone() -> None:
    debug = determinism.wanted(load_profile("debug"))
    changed = determinism.wanted(load_profile("debug", cudnn_benchmark=True))
    assert {name for name in debug if debug[name] != changed[name]} == {"cudnn_benchmark"}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("deterministic_algorithms", ["off", "warn", "error"]),
        ("fill_uninitialized_memory", [True, False]),
        ("inductor_deterministic", [True, False]),
        ("cudnn_deterministic", [True, False]),
        ("cudnn_benchmark", [True, False]),
        ("cudnn_tf32", [True, False]),
        ("float32_matmul_precision", ["highest", "high", "medium"]),
        ("cublas_workspace", [":4096:8", ":16:8"]),
    ],
)
def test_every_switch_reads_back_each_of_its_values(name: str, values: list[object]) -> None:
    for value in values:
        assert determinism.apply(from_mapping({name: value}))[name] == value


def test_a_switch_that_did_not_take_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches, "write", lambda _name, _value: None)
    wanted = not torch.backends.cudnn.benchmark
    with pytest.raises(ReproError, match=f"cudnn_benchmark={wanted} did not take: {not wanted} is in force"):
        determinism.apply(from_mapping({"cudnn_benchmark": wanted}))


def test_a_hash_seed_cannot_be_set_late() -> None:
    seed = 12345
    with pytest.raises(ReproError, match="hash_seed=12345 did not take") as raised:
        determinism.apply(Determinism(hash_seed=seed))
    assert f"PYTHONHASHSEED={seed}" in raised.value.hint


def test_the_cublas_workspace_cannot_be_set_once_cuda_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ReproError, match="cublas_workspace=:16:8 did not take"):
        determinism.apply(Determinism(cublas_workspace=":16:8"))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"cudnn_bench": True}, "cudnn_bench"),
        ({"cudnn_benchmark": "maybe"}, "maybe"),
        ({"deterministic_algorithms": "always"}, "off, warn, error"),
        ({"hash_seed": -1}, "hash_seed=-1"),
        ({"hash_seed": 2**32}, "out of range"),
    ],
)
def test_what_no_switch_takes_is_refused(values: dict[str, object], said: str) -> None:
    with pytest.raises(ReproError, match=said) as raised:
        from_mapping(values)
    assert raised.value.hint


def test_an_unknown_profile_lists_the_known() -> None:
    with pytest.raises(ReproError, match="no determinism profile nightly") as raised:
        load_profile("nightly")
    assert "debug" in raised.value.hint


def test_the_switches_are_a_structured_configuration() -> None:
    node = OmegaConf.merge(OmegaConf.structured(Determinism), {"deterministic_algorithms": "off"})
    made = OmegaConf.to_object(node)
    assert isinstance(made, Determinism)
    assert made.deterministic_algorithms is DeterministicAlgorithms.off
    again = OmegaConf.create(OmegaConf.to_yaml(node))
    assert OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(Determinism), again)) == made


def test_environment_holds_what_must_be_set_before_the_start() -> None:
    assert determinism.environment(load_profile("debug"), 2) == {
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TORCHINDUCTOR_DETERMINISTIC": "1",
        "OMP_NUM_THREADS": "2",
        "MKL_NUM_THREADS": "2",
        "OPENBLAS_NUM_THREADS": "2",
        "OMP_DYNAMIC": "FALSE",
        "MKL_DYNAMIC": "FALSE",
    }
    assert determinism.environment(load_profile("leave"), None) == {}


def test_hash_seed_is_read_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started = start.environment_at_start()
    monkeypatch.setenv("PYTHONHASHSEED", "99")
    assert start.environment_at_start() == started
    monkeypatch.setattr(start, "_STARTED_WITH", Path("/nowhere"))
    assert start.environment_at_start()["PYTHONHASHSEED"] == "99"
