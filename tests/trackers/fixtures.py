"""Fixtures for tests of experiment trackers: W&B without a network, and a local MLflow server."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trackers import mlflow_server as server

SERVER_KEY = "mlflow_server"
"""Key of the address of a server that all lanes share, in the input of a worker of pytest-xdist."""


@pytest.fixture
def wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the folder of W&B's files, whether or not it is installed."""
    folder = tmp_path / "tracked"
    folder.mkdir()
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    # It would read the metadata of every installed package for each run.
    monkeypatch.setenv("WANDB_X_SAVE_REQUIREMENTS", "false")
    for name in ("", "DATA_", "CACHE_", "CONFIG_"):
        monkeypatch.setenv(f"WANDB_{name}DIR", str(folder))
    yield folder
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()  # the next test has other settings


@pytest.fixture
def wandb_folder(wandb_offline: Path) -> Path:
    """Return the folder of offline runs of W&B; the test finishes its runs."""
    pytest.importorskip("wandb")
    return wandb_offline


@pytest.fixture(scope="session")
def mlflow_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of an MLflow server: the one of all lanes, or one for this process."""
    if not server.is_installed():
        pytest.skip("mlflow-skinny, or a package that its server needs, is not installed")
    shared = getattr(request.config, "workerinput", {}).get(SERVER_KEY)
    own = None if shared else server.MlflowServer(tmp_path_factory.mktemp("mlflow"))
    url = own.url if own else shared
    server.wait_until_up(url)
    yield url
    if own is not None:
        own.stop()


@pytest.fixture
def mlflow_uri(mlflow_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the server that of MLflow's functions in this process."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", mlflow_url)
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    return mlflow_url
