"""A script that breaks: closed when the interpreter exits, with a report on disk."""

from pathlib import Path

import pytest

from energy_callbacks.report import load
from tests.integrations.notebook.kernel import LABS, missing
from tests.integrations.processes import Forking, Script, wait


@pytest.mark.parametrize(
    ("end", "ended"),
    [("raises", (1, "RuntimeError: boom")), ("catches", (0, "stopped unexpectedly"))],
)
@pytest.mark.parametrize("framework", LABS)
def test_the_exit_closes_the_report(
    forking: Forking, tmp_path: Path, framework: str, end: str, ended: tuple[int, str]
) -> None:
    """An exception, caught or not, and the script's end: failed, saved, 1.5 s or as it took."""
    package = missing(framework)
    if package is not None:
        pytest.skip(f"{package} is not installed")
    code, error = ended
    module = "tests.integrations.notebook.breaking"
    script = Script(module=module, folder=tmp_path, arguments=(framework, end))
    assert wait(forking.start(script)) == code, script.output
    assert script.output.count("Traceback") == code, script.output
    [path] = tmp_path.rglob("energy_report.json")
    report = load(path)
    assert report.run.status == "failed"
    assert error in str(report.run.error)
    assert report.throughput.steps == 15
    [train_s] = [phase.duration_s for phase in report.phases if phase.name == "train"]
    assert 0.7 <= train_s <= float((tmp_path / "fit_s").read_text())
