"""The first screen of the page shows the answer and what to change, without scrolling."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.render import answer
from tests.report import first_screen
from tests.report.first_screen import WINDOW, cut, play_gpu, write_demo_like, write_page

RUNS: dict[str, Callable[[Path], Path]] = {
    "demo": write_demo_like,
    "gpu": play_gpu,
    "killed": lambda folder: cut(play_gpu(folder)),
}


@pytest.mark.charts
@pytest.mark.browser
@pytest.mark.parametrize("name", RUNS)
def test_answer_and_advice_are_on_the_first_screen(tmp_path: Path, browser: Any, name: str) -> None:
    """In a window of 1280 x 800, both end above the lower edge; the answer is above the advice."""
    folder = RUNS[name](tmp_path)
    file = write_page(folder, tmp_path / "page.html")
    report = build(folder, now_unix_s=first_screen.LATER_UNIX_S)
    page = browser.new_page(viewport=WINDOW)
    page.goto(file.as_uri())
    said, advice = (page.locator(mark) for mark in (".answer", ".advice"))
    assert said.inner_text().replace("\N{NO-BREAK SPACE}", " ") == answer.answer(report)
    assert report.advice
    assert report.advice[0].message in advice.inner_text()
    boxes = [one.bounding_box() for one in (said, advice)]
    assert boxes[0]["y"] + boxes[0]["height"] < boxes[1]["y"]
    assert boxes[1]["y"] + boxes[1]["height"] < WINDOW["height"]
    page.close()


def test_a_simulated_gpu_run_has_the_energy_of_its_signal(tmp_path: Path) -> None:
    """144 s at 525 W on average; a quarter of the training waits for data, at 180 W."""
    report = build(play_gpu(tmp_path))
    length_s = first_screen.STEPS * first_screen.STEP_S + 6 * first_screen.VALIDATION_S
    energy_j = length_s * (0.75 * 640.0 + 0.25 * 180.0)
    assert report.energy.gpu.energy_j == pytest.approx(energy_j, rel=0.02)
    assert [one.code for one in report.advice] == ["data_wait"]
