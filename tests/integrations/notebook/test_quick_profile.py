"""The notebook of the examples, as a reader runs it from top to bottom."""

from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import nbformat
from nbclient import NotebookClient

from tests.integrations.notebook.kernel import ROOT, environment

# A cell before those of the notebook: all models are the smallest one, of fewer images, and
# the pages of reports have no charts; the pictures that the notebook shows are drawn.
SMALL = """
import pytest
from energy_callbacks.profiling.zoo import torch_data, torch_models
patch = pytest.MonkeyPatch()
patch.setattr(torch_data, "_SYNTHETIC", 1024)
patch.setattr(torch_models, "MODELS", dict.fromkeys(torch_models.MODELS, torch_models.simple_cnn))
patch.setattr("energy_callbacks.report.html.CHARTS", ())
"""
SLOW = pytest.mark.slow(reason="trains a ResNet-50 and three other models on the processor: 30 s")


@pytest.mark.parametrize(
    "preamble", [SMALL, pytest.param("", marks=SLOW)], ids=["small models", "as it is"]
)
def test_the_notebook_runs_and_shows_its_figures(tmp_path: Path, preamble: str) -> None:
    """No cell breaks; a table, pictures and the report are there to see, and files remain."""
    if not find_spec("torch"):
        pytest.skip("torch is not installed")
    path = ROOT / "examples" / "quick_profile.ipynb"
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in git"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(preamble))
    client = NotebookClient(notebook, timeout=300, kernel_name="python3")
    client.execute(cwd=str(tmp_path), env=environment(tmp_path) | {"OMP_NUM_THREADS": "1"})
    shown = [
        output.data
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if "data" in output
    ]
    assert sum("image/png" in data for data in shown) >= 3
    assert sum("<iframe" in data.get("text/html", "") for data in shown) == 1
    tables = [data["text/markdown"] for data in shown if "text/markdown" in data]
    assert [table.count("\n| ") for table in tables] == [2, 5], tables
    assert "resnet50" in tables[1]
    saved = tmp_path / "profiling_results"
    assert {path.name for path in saved.glob("table.*")} == {"table.csv", "table.json", "table.md"}
    assert (saved / "simple_cnn-synthetic" / "profile" / "host.prof").is_file()
