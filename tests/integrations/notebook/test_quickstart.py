"""The quickstart's notebook, from the first cell to the report."""

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

import nbformat

from tests.integrations.notebook.cells import run_cells
from tests.integrations.notebook.kernel import ROOT
from tests.integrations.processes import Forking


def test_the_notebook_runs(forking: Forking, tmp_path: Path) -> None:
    """It shows the sensors and the report; TensorBoard's server, its last cell, is not started."""
    if missing := [one for one in ("lightning", "sklearn") if not find_spec(one)]:
        pytest.skip(f"not installed: {missing}")
    notebook = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in git"
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    sources = [source for source in sources if "%tensorboard" not in source]
    assert "EPOCHS = 20" in sources
    sources[sources.index("EPOCHS = 20")] = "EPOCHS = 1"
    cells = run_cells(forking, tmp_path, sources)
    assert not [one for cell in cells for one in cell if one.output_type == "error"], cells
    outputs = str(cells)
    assert "Carbon intensity" in outputs
    assert "Energy report" in outputs
    assert "'name': 'train'" in outputs
    assert list(tmp_path.rglob("events.out.tfevents.*"))
