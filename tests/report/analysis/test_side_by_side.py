"""Two runs side by side: ratios with the intervals of both sensors."""

from pathlib import Path

from energy_callbacks.report.analysis.side_by_side import render
from energy_callbacks.report.build import build
from tests.report.journals import IDLE, Attempt, Stretch, write


def report_at(folder: Path, power_w: float, **attempt):
    """A minute of training at a power."""
    train = Stretch(phase="train", duration_s=60.0, power_w={"gpu0": power_w, "cpu0": 100.0})
    write(folder, Attempt(stretches=(train,), **attempt))
    return build(folder)


def test_two_runs(tmp_path: Path) -> None:
    """500 W against 400 W, each known to 1 %: 0.8 times, give or take 2 %; time is exact."""
    old = report_at(tmp_path / "old", 500.0)
    new = report_at(tmp_path / "new", 400.0, samples_per_step=64)
    table = {line[:20].strip(): line[20:].split() for line in render(old, new).splitlines()}
    assert table["time"][-1] == "1.00"
    gpu = table["energy, gpu"]
    assert gpu[:4] == ["8.33", "Wh", "6.67", "Wh"]
    assert gpu[4:] == ["0.800", "(0.784", "to", "0.816)"]
    assert table["energy per sample"][-4] == "0.417"
    assert table["samples per second"][-1] == "2.00"
    assert "One run on each side" in render(old, new)


def test_what_one_of_them_does_not_know(tmp_path: Path) -> None:
    """A dash, and no ratio."""
    old = report_at(tmp_path / "old", 500.0)
    write(tmp_path / "new", Attempt(stretches=(IDLE,), samples_per_step=None))
    table = render(old, build(tmp_path / "new"))
    [line] = [line for line in table.splitlines() if line.startswith("energy per sample")]
    assert line.endswith("   -")
    assert all(len(line) <= 80 for line in table.splitlines())
