"""The report process and a run of W&B that ends before or after the report is complete."""

from pathlib import Path

import pytest

from energy_callbacks.report import load
from energy_callbacks.report_process.queue import PROCESS_VARIABLE
from tests.integrations.processes import Script, Spawning, wait
from tests.trackers import wandb_view
from tests.trackers.wandb_view import WandbView

WARNING = "is not in the run of W&B"


def tracked(folder: Path, end: str) -> tuple[WandbView, str]:
    """Run the script, and return its run and its output."""
    script = Script(
        module="tests.trackers.wandb_script",
        folder=folder,
        arguments=(end,),
        environment={PROCESS_VARIABLE: "1"},
    )
    assert wait(Spawning().start(script)) == 0, script.output
    return wandb_view.read(folder), script.output


@pytest.mark.parametrize("end", ["exits", "waits"])
def test_the_report_arrives(tmp_path: Path, wandb_folder: Path, end: str) -> None:
    """At the exit, attempts end before W&B's run, although W&B was started later."""
    view, output = tracked(tmp_path, end)
    assert WARNING not in output
    report = load(tmp_path / "energy" / "energy_report.json")
    assert view.summary["final/total_wh"] == pytest.approx(report.energy.total.energy_j / 3600)
    [files] = view.artifacts.values()
    html = (tmp_path / "energy" / "energy_report.html").read_bytes()
    assert files["energy_report.html"].read_bytes() == html


def test_a_run_that_is_finished_at_once_has_the_figures(tmp_path: Path, wandb_folder: Path) -> None:
    """A warning says that the report is missing, and what to do."""
    view, output = tracked(tmp_path, "finishes")
    report = load(tmp_path / "energy" / "energy_report.json")
    expected_wh = report.energy.total.energy_j / 3600
    assert view.summary["final/total_wh"] == pytest.approx(expected_wh, rel=0.5)
    assert view.config["energy_callbacks"]["device"] == "a GPU"
    assert view.artifacts == {}
    assert WARNING in output
    assert "call wait_for_report()" in output
