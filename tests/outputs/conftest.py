"""Fixtures for all tests of outputs."""

from tests.integrations.no_tensorflow import keep_tensorflow_out
from tests.trackers.fixtures import (  # noqa: F401 - fixtures
    mlflow_uri,
    mlflow_url,
    wandb_folder,
    wandb_offline,
)

keep_tensorflow_out()
