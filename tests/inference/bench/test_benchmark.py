"""The runs of a benchmark, with stand-ins for GPU and controller."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.inference.bench import benchmark, rows
from energy_callbacks.inference.bench.report import collect, pages
from energy_callbacks.inference.bench.report.curves import Curves, power, throughput
from energy_callbacks.inference.bench.report.summary import summary
from energy_callbacks.inference.bench.results import Results
from energy_callbacks.inference.bench.runs import Run, runs
from energy_callbacks.inference.bench.tasks import Task
from energy_callbacks.inference.control import controllers
from energy_callbacks.inference.control.protocols import OperatingPoint
from tests.inference.bench import stand_ins

DEVICE = stand_ins.SteadyDevice()


@pytest.fixture(autouse=True)
def controllers_(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use stand-ins for controllers."""
    monkeypatch.setattr(controllers, "CONTROLLERS", stand_ins.CONTROLLERS)


def device_of(_: Task) -> stand_ins.SteadyDevice:
    """Return the GPU of a task."""
    return DEVICE


def make(folder: Path, todo: list[Run], window_s: float = 1.0) -> list[benchmark.Outcome]:
    """Make runs."""
    every = benchmark.make(
        todo, device_of, Results(folder), stand_ins.NO_PREDICTORS, window_s=window_s
    )
    return list(every)


def test_the_columns(tmp_path: Path) -> None:
    """The published columns come first, in their order; times begin with the run."""
    make(tmp_path, runs([stand_ins.task()], ["still"], 1), window_s=2.0)
    with (tmp_path / "steady_still" / "1_m_d_100W.csv").open(newline="") as file:
        first, second, _ = csv.DictReader(file)
    assert list(first)[:12] == [
        *("iter", "mps_resources", "batch_sizes", "sm_freq_mhz", "mem_freq_mhz", "sm_util"),
        *("mem_util", "throughput_total", "power_avg", "power_max", "power_cap_w", "timestamp"),
    ]
    expected = {
        "iter": "1",
        "mps_resources": "[50, 50]",
        "batch_sizes": "[8, 8]",
        "sm_util": "",
        "power_avg": "92.0",
        "power_cap_w": "100.0",
        "timestamp": "4",
        "start_s": "2.0",
        "end_s": "4.0",
        "energy_j": "184.0",
        "source": "simulated",
        "algorithm": "still",
        "seed": "0",
        "degraded": "nothing is changed",
        "models": '["m", "m"]',
        "is_steady": "true",
        "duty": "1.0",
    }
    assert {name: second[name] for name in expected} == expected
    assert first["start_s"] == "0.0"


@pytest.mark.parametrize(
    ("set_mhz", "measured_mhz", "shown_mhz"),
    [(1500.0, 1400.0, 1500.0), (None, 1400.0, 1400.0), (None, None, None)],
)
def test_the_clock_of_a_row(
    set_mhz: float | None, measured_mhz: float | None, shown_mhz: float | None
) -> None:
    """It is the clock that was set, or the measured one if none was set."""
    window = replace(
        stand_ins.SteadyPlant(0).window(1.0),
        point=OperatingPoint(configuration=replace(stand_ins.POINT.configuration, sm_mhz=set_mhz)),
        sm_mhz_measured=measured_mhz,
    )
    labels = rows.Labels(source="measured", gpu="g", dataset="d", algorithm="a", seed=0)
    cells = rows.cells(0, window, 100.0, labels, start_s=0.0, timestamp="")
    assert (cells["sm_freq_mhz"], cells["sm_mhz_measured"]) == (shown_mhz, measured_mhz)


def test_caps_change_at_their_iterations(tmp_path: Path) -> None:
    """An iteration is a window, whatever its length."""
    changing = Task(
        number=1,
        gpu="steady",
        model="m",
        dataset="d",
        iterations=6,
        schedule=((0, 100.0), (2, 80.0), (5, 90.0)),
    )
    make(tmp_path, runs([changing], ["still"], 1), window_s=0.5)
    found = rows.read(tmp_path / "steady_still" / "1_m_d_dynamic.csv")
    assert [one.cap_w for one in found] == [100.0, 100.0, 80.0, 80.0, 80.0, 90.0]


def test_a_failed_run_does_not_end_the_benchmark(tmp_path: Path) -> None:
    """It has an error and no result, the next one is made, and it is tried again later."""
    todo = runs([stand_ins.task(1, cap_w=0.5), stand_ins.task(2)], ["still"], 1)
    for was_finished in (False, True):
        failed, finished = make(tmp_path, todo)
        assert failed.error == "0.5 W is too low for this controller"
        assert not finished.error
        assert finished.was_finished is was_finished
        (path,) = tmp_path.glob("steady_still/*.csv")
        assert path.name == "2_m_d_100W.csv"


class WithoutSecondPlan(stand_ins.Still):
    """A controller that finds no plan when the cap changes."""

    def cap_changed(self, cap_w: float) -> OperatingPoint:
        """See ``Controller``."""
        self.degraded = f"no plan for {cap_w:g} W"
        return stand_ins.POINT


def test_a_plan_that_is_missing_later_is_in_the_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the statements of all windows, not only of the first one."""
    monkeypatch.setattr(controllers, "CONTROLLERS", {"late": WithoutSecondPlan})
    changing = replace(stand_ins.task(), schedule=((0, 100.0), (2, 80.0)))
    todo = runs([changing], ["late"], 2)
    make(tmp_path, todo)
    (row,) = summary(collect.finished(todo, device_of, Results(tmp_path), {})).rows
    assert row.degraded == "nothing is changed; no plan for 80 W"


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    """A result with too few rows, or with text instead of a number, is not summarised."""
    todo = runs([stand_ins.task()], ["still"], 1)
    make(tmp_path, todo)
    path = tmp_path / todo[0].file("steady")
    whole = path.read_text()
    path.write_text("".join(whole.splitlines(keepends=True)[:-1]))
    with pytest.raises(ValueError, match=r"has 2 rows, and the run has 3; remove the file"):
        collect.finished(todo, device_of, Results(tmp_path), {})
    path.write_text(whole.replace("91.0", "much"))
    with pytest.raises(ValueError, match=r"1_m_d_100W\.csv, line 2: could not convert"):
        collect.finished(todo, device_of, Results(tmp_path), {})
    path.write_text(whole.replace("91.0", "nan"))
    with pytest.raises(ValueError, match=r"1_m_d_100W\.csv, line 2: nan is not a finite number"):
        collect.finished(todo, device_of, Results(tmp_path), {})
    path.write_bytes(whole.encode().replace(b"91.0", b"\xff", 1))
    with pytest.raises(ValueError, match=r"1_m_d_100W\.csv, line 2: could not convert"):
        collect.finished(todo, device_of, Results(tmp_path), {})
    path.write_text(whole.rpartition(",")[0] + "\n")
    with pytest.raises(ValueError, match=r"1_m_d_100W\.csv, line 4: it has fewer columns"):
        collect.finished(todo, device_of, Results(tmp_path), {})
    path.write_text("a,b\n")
    with pytest.raises(ValueError, match="has no column 'iter'"):
        collect.finished(todo, device_of, Results(tmp_path), {})


def test_the_pages(tmp_path: Path) -> None:
    """Each task has a page with the curves of all controllers; the overview links to it."""
    todo = runs([stand_ins.task(1), stand_ins.task(2)], ["still", "other"], 2)
    make(tmp_path, todo)
    results = Results(tmp_path)
    found = summary(collect.finished(todo, device_of, results, {}))
    written = pages.save(tmp_path, found, collect.curves(todo, device_of, results))
    assert [str(path.relative_to(tmp_path)) for path in written] == [
        *("summary.csv", "summary.json", "bench.html"),
        *("tasks/1_m_d_100W.html", "tasks/2_m_d_100W.html"),
    ]
    overview, page = written[2].read_text(), written[3].read_text()
    assert 'href="tasks/1_m_d_100W.html"' in overview
    assert 'href="../bench.html"' in page
    for text in (overview, page):
        assert "simulated" in text
        assert "<script" not in text
    assert page.count("<svg") == 4  # two charts, for wide and narrow screens


@pytest.mark.charts
def test_the_curves() -> None:
    """A chart has a line for each controller, and the cap or the best operating point."""
    read = [
        rows.Row(
            start_s=float(at),
            end_s=at + 1.0,
            cap_w=100.0,
            power_mean_w=90.0 + at,
            throughput_per_s=10.0 * at,
            energy_j=90.0,
        )
        for at in range(4)
    ]
    known = Curves(rows={"a": read, "b": read[:3]}, best_per_s={100.0: 50.0})
    for draw, name, mark, values in (
        (power, "power (W)", "cap", [90.0, 91.0, 92.0, 93.0]),
        (throughput, "samples/s", "optimum", [0.0, 10.0, 20.0, 30.0]),
    ):
        (axes,) = draw(known, 9.4).axes
        first, second = axes.lines
        assert first.get_xydata().tolist() == [[at + 0.5, value] for at, value in enumerate(values)]
        assert len(second.get_xydata()) == 3
        legend = axes.get_legend()
        assert legend is not None
        assert [one.get_text() for one in legend.get_texts()] == ["a", "b", mark]
        assert axes.get_ylabel() == name
    (axes,) = throughput(Curves(rows={"a": read}, best_per_s={}), 9.4).axes
    legend = axes.get_legend()
    assert legend is not None
    assert [one.get_text() for one in legend.get_texts()] == ["a"]
