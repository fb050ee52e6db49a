"""Examples without a framework; the others are run by ``tests/integrations/*/test_docs.py``."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs import examples
from tests.docs.examples import EXAMPLES

INTEGRATIONS = Path(__file__).parents[1] / "integrations"
OF_TORCH = ("matrix_train.py", "plain_pytorch.py")


def test_no_example_is_forgotten() -> None:
    """Each example is run by a test."""
    by_frameworks = "".join(path.read_text() for path in INTEGRATIONS.glob("*/test_docs.py"))
    for path in EXAMPLES.glob("*.py"):
        assert path.name in OF_TORCH or path.name in by_frameworks, path.name


@pytest.mark.parametrize("name", OF_TORCH)
def test_an_example_of_pytorch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script succeeds and writes an energy report below its working directory."""
    missing = [package for package in ("torch", "sklearn") if not find_spec(package)]
    if missing:
        pytest.skip(f"not installed: {missing}")
    examples.run(name, tmp_path, monkeypatch)
