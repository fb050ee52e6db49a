"""A notebook: the training breaks in the middle, and the next cell is about it."""

import json
from typing import Any

import pytest

pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

from tests.integrations.contract.lab import POWER_W
from tests.integrations.notebook.cells import run_cells
from tests.integrations.notebook.kernel import LABS, missing
from tests.integrations.processes import Forking

IMPORTS = """
import json, os, signal, time
from tests.integrations.notebook.kernel import Session, boom

def figures():
    saved = session.callback.wait_for_report() is not None
    report = session.callback.report()
    by_name = {phase.name: phase for phase in report.phases}
    print(json.dumps({
        "status": report.run.status, "error": report.run.error, "trained_s": session.trained_s,
        "fit_s": session.fit_s,
        "train_s": by_name["train"].duration_s, "train_j": by_name["train"].gpu.energy_j,
        "known": by_name["train"].gpu.coverage, "measured_s": measured_s,
        "all_j": report.energy.gpu.energy_j, "threads": session.threads(),
        "attempts": [(attempt.status, attempt.steps) for attempt in report.attempts],
        "saved": saved,
    }))

def wait_for_threads():
    end_s = time.monotonic() + 300.0
    while session.threads() and time.monotonic() < end_s:
        time.sleep(0.05)
    assert not session.threads(), "they go on"
    global measured_s
    measured_s = session.clock.monotonic_s() - session.began_s
"""
CELLS = {
    "setup": "session = Session({framework!r})",
    "exception": "session.fit(boom)",
    "after exception": "wait_for_threads(); time.sleep(2.0); figures()",
    "shown": "session.callback.report()",
    "second fit": "session.fit()",
    "after second fit": "wait_for_threads(); figures()",
    "ctrl-c": "session.fit(lambda: os.kill(os.getpid(), signal.SIGINT))",
    "after ctrl-c": "wait_for_threads(); figures()",
}


@pytest.fixture(scope="module")
def notebook(forking: Forking, tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The outputs of all cells of a notebook, by framework and name of the cell."""
    places = [(framework, name) for framework in LABS if not missing(framework) for name in CELLS]
    sources = [IMPORTS, *(CELLS[name].format(framework=one) for one, name in places)]
    imports, *cells = run_cells(forking, tmp_path_factory.mktemp("notebook"), sources)
    assert not errors(imports), imports
    return dict(zip(places, cells, strict=True))


@pytest.fixture(params=LABS)
def cells(request: pytest.FixtureRequest, notebook: dict) -> dict:
    """The outputs of the cells of a framework, by the name of the cell."""
    package = missing(request.param)
    if package is not None:
        pytest.skip(f"{package} is not installed")
    found = {name: notebook[request.param, name] for name in CELLS}
    assert not errors(found["setup"]), found["setup"]
    return found


def errors(outputs: list[Any]) -> list[str]:
    """Names of the exceptions that came out of a cell."""
    return [output.ename for output in outputs if output.output_type == "error"]


def figures(outputs: list[Any]) -> dict[str, Any]:
    """What a cell has printed as JSON."""
    assert not errors(outputs), outputs
    printed = "".join(output.text for output in outputs if output.get("name") == "stdout")
    return json.loads(printed.splitlines()[-1])


def assert_trained(found: dict[str, Any]) -> None:
    """The phase of training ends where the batches ended, and not where the user looked."""
    assert found["trained_s"] - 0.9 <= found["train_s"] <= found["fit_s"]
    # On a busy machine the first reading, before which no energy is known, may be late.
    assert found["known"] > 0.5
    known_s = found["train_s"] * found["known"]
    assert found["train_j"] == pytest.approx(POWER_W * known_s, abs=POWER_W * 0.1)


def test_an_exception_ends_the_measuring(cells: dict) -> None:
    """The cell shows the user's own exception; the report holds it, and joules until then."""
    assert errors(cells["exception"]) == ["RuntimeError"]
    found = figures(cells["after exception"])
    assert (found["status"], found["error"]) == ("failed", "RuntimeError: boom")
    assert found["saved"]
    assert_trained(found)


def test_idle_time_between_cells_is_not_measured(cells: dict) -> None:
    """The total ends when our threads have ended, some time before the user looked."""
    found = figures(cells["after exception"])
    assert found["all_j"] <= POWER_W * found["measured_s"]


def test_no_thread_of_ours_is_left(cells: dict) -> None:
    """Some time after the exception, after the fit and after Ctrl-C."""
    for name in ("after exception", "after second fit", "after ctrl-c"):
        assert figures(cells[name])["threads"] == [], name


def test_the_report_shows_itself(cells: dict) -> None:
    """``callback.report()`` as the last line of a cell is the page in a frame."""
    [shown] = cells["shown"]
    assert shown.data["text/html"].lstrip().startswith("<iframe")


def test_a_fit_after_the_exception_is_a_second_attempt(cells: dict) -> None:
    """It works, and the first attempt keeps its failure."""
    assert errors(cells["second fit"]) == []
    found = figures(cells["after second fit"])
    assert found["status"] == "finished"
    assert found["attempts"] == [["failed", 15], ["finished", 20]]


def test_ctrl_c_ends_the_measuring(cells: dict) -> None:
    """A SIGINT to the kernel in the middle of a batch: interrupted, with joules until then."""
    assert errors(cells["ctrl-c"]) == ["KeyboardInterrupt"]
    found = figures(cells["after ctrl-c"])
    assert found["status"] == "interrupted"
    assert "KeyboardInterrupt" in found["error"]
    assert [status for status, _ in found["attempts"]] == ["failed", "finished", "interrupted"]
