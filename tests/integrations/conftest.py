"""Frameworks are slow to import, and Keras knows one backend a process: each has its own process.

``test_frameworks.py`` starts them. A folder is collected here only where it is named:
``python -m pytest tests/integrations/lightning``.
"""

from pathlib import Path

import pytest

from tests.fake_nvml.fixtures import fake_nvml  # noqa: F401 - a fixture

HERE = Path(__file__).parent
FOLDERS = ("lightning", "huggingface", "keras")

pytest.register_assert_rewrite("tests.integrations.contract")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the folder of a framework that the command line does not name."""
    if collection_path.parent != HERE or collection_path.name not in FOLDERS:
        return None
    named = (Path(argument.partition("::")[0]).resolve() for argument in config.args)
    return None if any(path.is_relative_to(collection_path) for path in named) else True
