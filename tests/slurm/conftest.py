"""A Slurm of two nodes for the tests of this folder, and the environment of its jobs."""

import os
from collections.abc import Iterator

import pytest

from tests.installed import installed
from tests.slurm.cluster import Cluster, missing


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Two nodes: ``n1`` has all of this machine's processors, ``n2`` the first one alone."""
    if why := missing():
        pytest.skip(why)
    processors = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    made = Cluster(cpus=[processors, processors.partition(",")[0]])
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="session")
def job_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of jobs, in which the scripts find the project installed."""
    return installed(tmp_path_factory.mktemp("installed") / "venv")
