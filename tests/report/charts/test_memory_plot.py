"""The chart of memory over time: its lines, its units, and missing data."""

from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.core.records import Device
from energy_callbacks.report.build import build
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.charts.memory_plot import memory_over_time
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html
from tests.report.journals import CPU, GPU, GPU1, PROCESS, TRAIN, Attempt, write


def lines(report) -> dict[str, tuple[list[float], list[float]]]:
    """Returns times and GiB of each line by label."""
    drawn = memory_over_time(report).axes[0].lines
    return {str(one.get_label()): (list(one.get_xdata()), list(one.get_ydata())) for one in drawn}


def test_each_kind_of_memory_is_a_line_in_gib(tmp_path: Path) -> None:
    """GPU: 40 GB plus 0.1 GB/s; host: 2 GB plus 10 MB/s; allocator: a peak of 30 GB."""
    write(tmp_path, Attempt(stretches=(TRAIN,), devices=(GPU, CPU, PROCESS)))
    found = lines(build(tmp_path))
    assert set(found) == {"GPU, in use", "host, resident", "allocated, peak"}
    assert found["GPU, in use"][1][-1] == pytest.approx((40e9 + 1e8 * 60.0) / 2**30)
    assert found["host, resident"][1][-1] == pytest.approx((2e9 + 1e7 * 60.0) / 2**30)
    assert set(found["allocated, peak"][1]) == {30e9 / 2**30}
    for t_s, _ in found.values():
        assert t_s == sorted(t_s)
        assert t_s[-1] == pytest.approx(60.0)


@pytest.mark.parametrize("duration_s", [30.0, 1200.0])
def test_of_two_cards_the_fuller_is_drawn(tmp_path: Path, duration_s: float) -> None:
    """One line shows the highest of both GPUs in a limited number of points."""
    stretch = replace(TRAIN, duration_s=duration_s, power_w={"gpu0": 100.0, "gpu1": 100.0})
    write(tmp_path, Attempt(stretches=(stretch,), devices=(GPU, GPU1)))
    report = build(tmp_path)
    full, other = report.series
    fuller = replace(full, memory_bytes=tuple(2.0 * (value or 0.0) for value in full.memory_bytes))
    found = lines(replace(report, series=(fuller, other)))
    ((label, (t_s, gib)),) = found.items()
    assert min(gib) * 2**30 > 80e9
    assert gib == sorted(gib)
    assert gib[-1] * 2**30 == pytest.approx(fuller.memory_bytes[-1])
    assert label == "GPU, in use (highest of 2)"
    assert 50 < len(t_s) < 300


def test_an_hour_is_in_minutes_and_a_resumed_run_goes_on(tmp_path: Path) -> None:
    """The second attempt follows the first on the time axis."""
    hour = replace(TRAIN, duration_s=1800.0)
    first = Attempt(stretches=(hour,), row_s=5.0)
    write(tmp_path, first)
    write(tmp_path, replace(first, attempt=2, unix_s=first.unix_s + 9000.0))
    t_min, _ = lines(build(tmp_path))["GPU, in use"]
    assert t_min[-1] == pytest.approx(60.0)


@pytest.mark.charts
def test_without_memory_there_is_no_chart(
    tmp_path: Path, report: EnergyReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with only a CPU has no chart of memory."""
    monkeypatch.setattr(html, "CHARTS", [c for c in catalogue.CHARTS if c.name == "memory"])
    assert "Memory over time" in html.render(report)
    cpu: Device = replace(CPU, key="cpu0")
    write(tmp_path, Attempt(devices=(cpu,)))
    bare = build(tmp_path)
    assert memory_over_time(bare) is None
    assert "Memory over time" not in html.render(bare)
