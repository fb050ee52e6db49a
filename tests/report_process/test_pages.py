"""Pages of TensorBoard that are written after a training."""

from pathlib import Path

import pytest

from energy_callbacks.report import build
from energy_callbacks.report_process.pages import Pages, last_figures
from tests.report.journals import GERMANY, Attempt, write


@pytest.mark.usefixtures("no_charts")
def test_a_run_directory_in_the_cloud_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework writes to it; we cannot, and no local folder ``gs:`` is created."""
    write(tmp_path / "run", Attempt())
    monkeypatch.chdir(tmp_path)
    folders = ["gs://bucket/train", str(tmp_path / "board")]
    pages = Pages(folders=folders, compared=folders, facts={}, metrics={}, step=1, unix_s=1e9)
    pages.write(build(tmp_path / "run"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["board", "run"]
    assert len(list((tmp_path / "board").iterdir())) == 1


def test_emissions_of_an_unresolved_energy_are_left_out(tmp_path: Path) -> None:
    """Their value would not be known, as that of the energy."""
    found = {}
    for name, edge_j in (("long", 0.0), ("short", 1e6)):
        write(tmp_path / name, Attempt(config={"place": GERMANY}, edge_j=edge_j))
        found[name] = set(last_figures(build(tmp_path / name)))
    assert {"final/total_wh", "final/emissions_g"} <= found["long"]
    assert found["short"] == set()
