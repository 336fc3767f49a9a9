"""Settings of the whole suite."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A shared machine makes any example slow at times. In CI the same examples are tried every time; elsewhere new ones.
settings.register_profile("suite", deadline=None, derandomize=os.environ.get("CI") == "true")
settings.load_profile("suite")


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder as ``tmp_path``, in memory where it can be: for what waits for the disk again and again."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--full", action="store_true", help="run everything: the whole fault bank and what is as slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: run only with --full")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--full"):
        return
    skip = pytest.mark.skip(reason="only with --full")
    for item in items:
        if item.get_closest_marker("full") is not None:  # its keywords hold the names of folders as well
            item.add_marker(skip)
