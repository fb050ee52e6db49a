"""A local MLflow server with a SQLite database, for all processes of tests."""

import importlib.util
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.integrations.ports import reserved_port

# Of the server; clients need mlflow-skinny alone.
_PACKAGES = ("mlflow", "sqlalchemy", "alembic", "flask", "flask_cors", "graphene")
_START_S = 600.0


class MlflowServer:
    """A server process. The constructor does not wait until it is up.

    Args:
        folder: an existing folder, for its database, artifacts and log.

    Attributes:
        url: its address.
    """

    def __init__(self, folder: Path) -> None:
        self.url = f"http://127.0.0.1:{reserved_port()}"
        self._log = (folder / "server.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--workers", "1",
             "--host", "127.0.0.1", "--port", self.url.rpartition(":")[2],
             "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}",
             "--artifacts-destination", str(folder / "artifacts")],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=os.environ | {
                "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"
            },
        )  # fmt: skip

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.wait(30.0)
        self._log.close()


def is_installed() -> bool:
    """Return whether a server can be started."""
    return all(importlib.util.find_spec(name) is not None for name in _PACKAGES)


def wait_until_up(url: str) -> None:
    """Wait until a server answers.

    Raises:
        TimeoutError: if it does not answer within two minutes.
    """
    end_s = time.monotonic() + _START_S
    while time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5.0):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    raise TimeoutError(f"no MLflow server at {url} after {_START_S} s")
