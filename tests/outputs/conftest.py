"""Fixtures for all tests of outputs."""

from tests.integrations.no_tensorflow import keep_tensorflow_out
from tests.trackers.fixtures import mlflow_uri, mlflow_url, wandb_folder  # noqa: F401 - fixtures

keep_tensorflow_out()
