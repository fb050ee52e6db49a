"""The quickstart's notebook, from the first cell to the report."""

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import nbformat
from nbclient import NotebookClient

from tests.integrations.notebook.kernel import ROOT, environment


def test_the_notebook_runs(tmp_path: Path) -> None:
    """It shows the sensors and the report; TensorBoard's server, its last cell, is not started."""
    if missing := [one for one in ("lightning", "sklearn") if not find_spec(one)]:
        pytest.skip(f"not installed: {missing}")
    notebook = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in git"
    notebook.cells = [cell for cell in notebook.cells if "%tensorboard" not in cell.source]
    for cell in notebook.cells:
        cell.source = cell.source.replace("EPOCHS = 20", "EPOCHS = 1")
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(tmp_path), env=environment(tmp_path) | {"OMP_NUM_THREADS": "1"})
    outputs = str([output for cell in notebook.cells for output in cell.get("outputs", ())])
    assert "Carbon intensity" in outputs
    assert "Energy report" in outputs
    assert "'name': 'train'" in outputs
    assert list(tmp_path.rglob("events.out.tfevents.*"))
