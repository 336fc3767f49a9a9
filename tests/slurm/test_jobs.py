"""The batch scripts under a real Slurm: the exit codes that it shows, how jobs are ended, and what stays of them."""

import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from ddp_repro.trace.layout import RunFolder
from ddp_repro.trace.reader import read_trace
from tests.command import TINY
from tests.installed import ROOT
from tests.slurm.cluster import Cluster, Job

pytestmark = [pytest.mark.worlds, pytest.mark.timeout(600)]

SCRIPTS = ROOT / "slurm"
SMALL = (*TINY, "nproc=2", "second_look=false", "report.html=false")
TWO_NODES = ("--nodes=2",)
ENDLESS = ("workload.size=tiny", "train.epochs=100000", "nproc=2", "second_look=false")


class Jobs:
    """Jobs of one test, submitted from a folder of its own."""

    def __init__(self, cluster: Cluster, folder: Path, environ: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.environ = environ

    def submit(self, script: str, *overrides: str, options: tuple[str, ...] = ()) -> str:
        words = ["--output=job-%j.out", *options, str(SCRIPTS / script), *overrides]
        return self.cluster.submit(*words, cwd=self.folder, environ=self.environ)

    def run(self, script: str, *overrides: str, options: tuple[str, ...] = ()) -> Job:
        return self.cluster.wait(self.submit(script, *overrides, options=options), timeout_s=300)

    def told(self, job: str) -> str:
        return (self.folder / f"job-{job}.out").read_text()

    def document(self, job: str, name: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.folder / f"runs/slurm-{job}" / name).read_text())
        return content

    def verdict(self, job: str) -> dict[str, Any]:
        return self.document(job, "verdict.json")

    def processes(self) -> list[psutil.Process]:
        """Return the live processes of these jobs: all that run in their folder."""
        found = []
        for process in psutil.process_iter():
            try:
                is_here = Path(process.cwd()).is_relative_to(self.folder) and process.pid != os.getpid()
                if is_here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def await_steps(self, job: str) -> None:
        """Wait until both ranks of the first launch have written steps."""
        launch = RunFolder(self.folder / f"runs/slurm-{job}").launch(0)
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            files = [launch.trace(rank) for rank in range(2)]
            if all(file.is_file() and file.stat().st_size > 20_000 for file in files):
                return
            time.sleep(0.2)
        pytest.fail(f"no steps were seen\n{self.told(job)}\n{self.cluster.logs()}")


@pytest.fixture
def jobs(cluster: Cluster, job_environment: dict[str, str], tmp_path: Path) -> Iterator[Jobs]:
    made = Jobs(cluster, tmp_path, job_environment)
    yield made
    deadline = time.monotonic() + 20
    while made.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert made.processes() == []


def assert_stopped(jobs: Jobs, job: str, signal_name: str) -> None:
    """Assert that a job was ended in order: not judged, with what was recorded before."""
    verdict = jobs.verdict(job)
    assert verdict["verdict"] == "NOT_JUDGED"
    assert signal_name in " ".join(verdict["problems"])
    launch = RunFolder(jobs.folder / f"runs/slurm-{job}").launch(0)
    assert all(len(read_trace(launch.trace(rank))) > 100 for rank in range(2))
    assert "Traceback" not in jobs.told(job)


def test_a_check_that_is_reproducible(jobs: Jobs) -> None:
    job = jobs.run("check.sbatch", *SMALL, "nproc=1", options=TWO_NODES)
    assert (job.state, job.code, job.signal) == ("COMPLETED", 0, 0), jobs.told(job.id)
    assert jobs.verdict(job.id)["verdict"] == "REPRODUCIBLE"
    assert jobs.told(job.id).splitlines()[-1] == "REPRODUCIBLE"
    assert [entry["node"] for entry in jobs.document(job.id, "run.json")["nodes"]] == ["node 0 (n1)", "node 1 (n2)"]


@pytest.mark.full
@pytest.mark.parametrize("options", [(), TWO_NODES])
def test_a_planted_divergence(jobs: Jobs, options: tuple[str, ...]) -> None:
    planted = "workload._target_=planted.workloads.unseeded_library"
    job = jobs.run("check.sbatch", *SMALL[2:], planted, "train.max_steps=4", options=options)
    assert (job.state, job.code, job.signal) == ("FAILED", 1, 0), jobs.told(job.id)
    assert jobs.verdict(job.id)["verdict"] == "DIVERGED"
    assert jobs.told(job.id).splitlines()[-1] == "DIVERGED"


@pytest.mark.full
@pytest.mark.parametrize(
    ("wrong", "options"), [("nproc=0", ()), ("no such thing", ()), ("nope=1", ()), ("nope=1", TWO_NODES)]
)
def test_a_broken_configuration(jobs: Jobs, wrong: str, options: tuple[str, ...]) -> None:
    job = jobs.run("check.sbatch", *SMALL, wrong, options=options)
    assert (job.state, job.code, job.signal) == ("FAILED", 2, 0), jobs.told(job.id)
    assert "Traceback" not in jobs.told(job.id)
    assert "error: " in jobs.told(job.id)
    assert jobs.told(job.id).splitlines()[-1] == "NOT_JUDGED"


@pytest.mark.full
def test_a_verdict_of_another_run_is_not_taken_for_its_own(jobs: Jobs) -> None:
    other = jobs.folder / "other"
    other.mkdir()
    (other / "verdict.json").write_text('{"verdict": "REPRODUCIBLE", "exit_code": 0}')
    job = jobs.run("check.sbatch", *SMALL, "output.dir=other")
    assert (job.state, job.code) == ("FAILED", 2), jobs.told(job.id)
    assert "already holds a run" in jobs.told(job.id)


@pytest.mark.full
def test_nodes_of_different_thread_counts(jobs: Jobs) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two processors")
    job = jobs.run("check.sbatch", *SMALL, "threads=null", options=TWO_NODES)
    assert (job.state, job.code, job.signal) == ("FAILED", 2, 0), jobs.told(job.id)
    threads = len(os.sched_getaffinity(0))
    assert f"environment.threads is {threads} on node 0 (n1) and 1 on node 1 (n2)" in jobs.told(job.id).replace(
        "\n", " "
    )


@pytest.mark.full
@pytest.mark.parametrize("options", [(), TWO_NODES])
def test_scancel_ends_it_in_order(jobs: Jobs, options: tuple[str, ...]) -> None:
    number = jobs.submit("check.sbatch", *ENDLESS, options=options)
    jobs.await_steps(number)
    jobs.cluster.call("scancel", number)
    assert jobs.cluster.wait(number, timeout_s=60).state == "CANCELLED"
    assert_stopped(jobs, number, "SIGTERM")


@pytest.mark.full
def test_the_time_limit_ends_it_in_order(jobs: Jobs) -> None:
    number = jobs.submit("check.sbatch", *ENDLESS, options=("--time=2", "--signal=TERM@60"))
    job = jobs.cluster.wait(number, timeout_s=200)
    assert (job.state, job.code, job.signal) == ("FAILED", 2, 0), jobs.told(number)
    assert_stopped(jobs, number, "SIGTERM")


@pytest.mark.full
@pytest.mark.parametrize(("workload", "code"), [("clean", 0), ("unseeded_library", 1)])
def test_a_regression_check(jobs: Jobs, workload: str, code: int) -> None:
    jobs.environ = {name: value for name, value in jobs.environ.items() if name != "CI"}  # where none is ever made
    words = (*SMALL[2:], f"workload._target_=planted.workloads.{workload}", "train.max_steps=3", "golden.path=golden")
    assert jobs.run("regression.sbatch", *words).code == 2  # there was none: this launch becomes it
    job = jobs.run("regression.sbatch", *words)
    assert job.code == code, jobs.told(job.id)


@pytest.mark.full
def test_a_golden_must_be_named(jobs: Jobs) -> None:
    job = jobs.run("regression.sbatch", *SMALL)
    assert (job.state, job.code) == ("FAILED", 2)
    assert "golden.path=" in jobs.told(job.id)


@pytest.mark.full
def test_a_night_of_several_workloads_and_its_summary(jobs: Jobs) -> None:
    words = ("workload=digits", "workload._target_=planted.workloads.unseeded_library", "nproc=0 seed=3")
    told = jobs.cluster.call(
        str(SCRIPTS / "nightly.sh"), *words, "--", *SMALL[1:], cwd=jobs.folder, environ=jobs.environ
    )
    array, summary = re.findall(r"job (\d+)", told)
    job = jobs.cluster.wait(summary, timeout_s=300)
    assert (job.state, job.code) == ("FAILED", 1), told  # the worst of the night

    codes = [jobs.cluster.job(f"{array}_{task}").code for task in range(3)]
    assert codes == [0, 1, 2]
    (folder,) = jobs.folder.glob("runs/nightly-*")
    document = json.loads((folder / "summary.json").read_text())
    assert [run["verdict"] for run in document["runs"]] == ["REPRODUCIBLE", "DIVERGED", "NOT_JUDGED"]
    assert [run["folder"] for run in document["runs"]] == [f"runs/{folder.name}/{task}" for task in range(3)]
    table = (folder / "summary.md").read_text()
    assert "| workload=digits | REPRODUCIBLE |" in table
    assert f"| nproc=0 seed=3 | NOT_JUDGED | runs/{folder.name}/2/verdict.json is missing |" in table
