"""Fixtures of tests of profilers."""

import sys
from collections.abc import Iterator

import pytest

from tests.charts import no_charts  # noqa: F401 - a fixture of all tests here
from tests.integrations.processes import Forking

_SCRIPTS = ("tests.profiling.kernels.torch_script", "tests.profiling.host.workers_script")


@pytest.fixture(scope="session")
def forking() -> Iterator[Forking]:
    """Starts scripts in forks of a process that has imported PyTorch."""
    one = Forking.importing("torch._dynamo", "torch.profiler", *_SCRIPTS)
    yield one
    one.close()


@pytest.fixture
def untraced() -> Iterator[None]:
    """Disables tracing, such as that of coverage, for one test."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)
