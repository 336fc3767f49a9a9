"""The wheel is complete: installed elsewhere, and run from another folder, it does what the checkout does."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.packaging, pytest.mark.worlds]


def run(folder: Path, *command: str | Path) -> "subprocess.CompletedProcess[str]":
    # PYTHONPATH would bring the checkout back in.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    built = run(ROOT, sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder)
    assert built.returncode == 0, built.stdout + built.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the dependencies that are here already, without the editable checkout."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    install = run(
        folder, sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel
    )
    assert install.returncode == 0, install.stdout + install.stderr
    (site_packages,) = (folder / "lib").glob("python3*/site-packages")
    # A path named here is searched after the wheel, and the .pth files in it (the editable checkout) are not followed.
    (site_packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin"


def test_the_wheel_holds_everything_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    configuration = {f"ddp_repro/{file.relative_to(ROOT)}" for file in (ROOT / "conf").rglob("*.yaml")}
    assert "ddp_repro/conf/check.yaml" in configuration
    assert configuration <= set(names)
    assert "ddp_repro/py.typed" in names
    assert "ddp_repro/workload/digits.npz" in names
    for template in ("page.html.j2", "page.css", "page.js"):
        assert f"ddp_repro/report/html/templates/{template}" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"ddp_repro"}
    assert not [name for name in names if "__pycache__" in name or "/tests/" in name]


def test_configuration_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    place = run(tmp_path, installed / "python", "-c", "from ddp_repro.conf_dir import CONF_DIR; print(CONF_DIR)")
    assert place.stdout.strip().endswith("site-packages/ddp_repro/conf"), place.stdout + place.stderr
    assert place.stdout.startswith(str(installed.parent.resolve()))

    shown = run(tmp_path, installed / "python", "-m", "ddp_repro.check", "--cfg", "job")
    by_script = run(tmp_path, installed / "ddp-repro", "check", "--cfg", "job")

    assert (shown.returncode, by_script.returncode) == (0, 0), shown.stderr + by_script.stderr
    assert "nproc:" in shown.stdout
    assert by_script.stdout == shown.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_real_check_runs_from_another_folder(installed: Path, tmp_path: Path) -> None:
    done = run(tmp_path, installed / "python", "-m", "ddp_repro.check", "nproc=2", "workload.size=tiny")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "REPRODUCIBLE"
    (verdict,) = tmp_path.glob("runs/*/verdict.json")
    assert json.loads(verdict.read_text())["verdict"] == "REPRODUCIBLE"
    assert "REPRODUCIBLE" in verdict.with_name("report.html").read_text()
    assert str(ROOT) not in done.stdout + done.stderr


def test_pytest_finds_the_fixture_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(reproducible):\n    assert callable(reproducible.golden)\n")
    pytest_alone = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(tmp_path, installed / "python", *pytest_alone)
    assert done.returncode == 0, done.stdout + done.stderr
    left_out = run(tmp_path, installed / "python", *pytest_alone, "--strict-markers", "-m", "not reproducible")
    assert left_out.returncode == 5, left_out.stdout + left_out.stderr
    assert "1 deselected" in left_out.stdout
