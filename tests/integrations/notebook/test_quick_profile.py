"""The notebook of the examples, as a reader runs it from top to bottom."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

import nbformat
from nbclient import NotebookClient

from tests.integrations.notebook.cells import run_cells
from tests.integrations.notebook.kernel import ROOT, environment
from tests.integrations.processes import Forking

NOTEBOOK = ROOT / "examples" / "quick_profile.ipynb"
# A cell before those of the notebook: all models are the smallest one, of fewer images. The pages
# of reports have no charts in a fork; the pictures that the notebook shows are drawn.
SMALL = """
import importlib
from energy_callbacks.profiling.zoo import torch_data, torch_models
from energy_callbacks.report.charts import catalogue
importlib.reload(catalogue)
torch_data._SYNTHETIC = 1024
torch_models.MODELS = dict.fromkeys(torch_models.MODELS, torch_models.simple_cnn)
"""


@pytest.fixture
def notebook() -> Any:
    """The notebook of the examples."""
    if not find_spec("torch"):
        pytest.skip("torch is not installed")
    found = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in found.cells), "outputs are not kept in git"
    return found


def test_the_notebook_runs_and_shows_its_figures(
    forking: Forking, tmp_path: Path, notebook: Any
) -> None:
    """No cell breaks; a table, pictures and the report are there to see, and files remain."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    cells = run_cells(forking, tmp_path, [SMALL, *sources])
    assert_figures([output for cell in cells for output in cell], tmp_path)


@pytest.mark.slow(reason="trains a ResNet-50 and three other models on the processor: 30 s")
def test_the_notebook_as_it_is(tmp_path: Path, notebook: Any) -> None:
    """Likewise with the models that it names, in a process of its own."""
    client = NotebookClient(notebook, timeout=600, kernel_name="python3")
    client.execute(cwd=str(tmp_path), env=environment(tmp_path) | {"OMP_NUM_THREADS": "1"})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert_figures(outputs, tmp_path)


def assert_figures(outputs: list[Any], folder: Path) -> None:
    """What a reader sees, and what is left on disk."""
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [output.data for output in outputs if "data" in output]
    assert sum("image/png" in data for data in shown) >= 3
    assert sum("<iframe" in data.get("text/html", "") for data in shown) == 1
    tables = [data["text/markdown"] for data in shown if "text/markdown" in data]
    assert [table.count("\n| ") for table in tables] == [2, 5], tables
    assert "resnet50" in tables[1]
    saved = folder / "profiling_results"
    assert {path.name for path in saved.glob("table.*")} == {"table.csv", "table.json", "table.md"}
    assert (saved / "simple_cnn-synthetic" / "profile" / "host.prof").is_file()
