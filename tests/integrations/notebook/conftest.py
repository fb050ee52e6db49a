"""A process that imports the frameworks once; kernels and scripts are forks of it."""

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from tests.integrations.notebook.kernel import LABS, environment, missing
from tests.integrations.processes import Forking

# What the notebooks of the examples import beside the labs.
OTHERS = {"lightning": "lightning.pytorch", "sklearn": "sklearn.datasets"}


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forking]:
    """Starts scripts and kernels in a process that has imported frameworks, Keras on PyTorch."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(tmp_path_factory.mktemp("home")).items():
            patch.setenv(name, value)
        labs = (f"tests.integrations.{name}.lab" for name in LABS if missing(name) is None)
        others = (module for package, module in OTHERS.items() if find_spec(package))
        one = Forking.importing("ipykernel.kernelapp", *labs, *others)
        yield one
        one.close()
