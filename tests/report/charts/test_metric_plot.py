"""The chart of metrics over energy: which metrics it shows, and how."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.charts.memory_plot import memory_over_time
from energy_callbacks.report.charts.metric_plot import metric_over_energy, metric_pairs
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html
from tests.report.journals import PROCESS, TRAIN, Attempt, write


def report_of(folder: Path, rows: Sequence[Mapping[str, float]], **attempt) -> EnergyReport:
    """A minute at 600 W with a record every 6 s: 1 Wh per record, two records per epoch."""
    told = [(6.0 * (i + 1), row, i + 1, (i + 1) / 2) for i, row in enumerate(rows)]
    write(folder, Attempt(**({"stretches": (TRAIN,), "metrics": told} | attempt)))
    return build(folder)


@pytest.fixture
def only_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the other charts out of pages."""
    found = [chart for chart in catalogue.CHARTS if chart.name == "metrics"]
    assert found
    monkeypatch.setattr(html, "CHARTS", found)


TWO = [
    {"train_loss": 1.0 / (i + 1), "val_loss": abs(i - 4) + 1.0, "lr": 0.1, "val_acc": i / 10}
    for i in range(8)
]


def test_training_and_validation_stand_over_the_energy(tmp_path: Path) -> None:
    """Loss and accuracy are drawn, the learning rate is not; a ring marks the best value."""
    figure = metric_over_energy(report_of(tmp_path, TWO))
    loss, accuracy = figure.axes
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("loss", "acc")
    train, validation, ring = loss.lines
    assert list(train.get_xdata()) == pytest.approx([1.0 * (i + 1) for i in range(8)])
    assert list(validation.get_ydata()) == [row["val_loss"] for row in TWO]
    assert (list(ring.get_xdata()), list(ring.get_ydata())) == ([5.0], [1.0])
    assert list(accuracy.lines[-1].get_ydata()) == [0.7]


def test_on_a_telephone_panels_stand_below_each_other(tmp_path: Path) -> None:
    """Narrow panels are stacked, and the narrow chart of memory has no metric."""
    report = report_of(tmp_path, TWO)
    first, second = (axes.get_position() for axes in metric_over_energy(report, width_in=4.3).axes)
    assert first.x0 == pytest.approx(second.x0, abs=0.05)
    assert len(memory_over_time(report, width_in=4.3).axes) == 1
    memory, beside = memory_over_time(report).axes
    assert list(beside.lines[0].get_xdata()) == [(i + 1) / 2 for i in range(8)]
    assert (memory.get_ylabel(), beside.get_xlabel()) == ("memory (GiB)", "epoch")


@pytest.mark.charts
@pytest.mark.usefixtures("only_metrics")
@pytest.mark.parametrize(
    ("rows", "attempt"),
    [([], {}), ([{"loss": 1.0}], {}), (TWO, {"devices": ()}), (TWO, {"devices": (PROCESS,)})],
)
def test_what_is_not_known_is_not_drawn(tmp_path: Path, rows, attempt) -> None:
    """Without a metric, with a single point or without energy there is no chart or heading."""
    report = report_of(tmp_path, rows, **attempt)
    assert metric_over_energy(report) is None
    assert "Metric over energy" not in html.render(report)


def test_a_metric_that_says_nothing_of_itself_is_drawn_where_it_is_alone(tmp_path: Path) -> None:
    """The label of the axis is the name of the metric."""
    figure = metric_over_energy(report_of(tmp_path, [{"Güte": 1.0}, {"Güte": 2.0}]))
    assert [axes.get_ylabel() for axes in figure.axes] == ["güte"]


def test_of_one_quantity_in_many_records_the_fullest_is_drawn(tmp_path: Path) -> None:
    """Lightning logs a loss under three names; the one of the epoch is the mean."""
    rows = [{"train_loss": 3.0, "train_loss_step": 2.0, "train_loss_epoch": 1.0}] * 4
    (family,) = metric_pairs(report_of(tmp_path, rows), "energy")
    assert family.training.name == "train_loss_epoch"


@pytest.mark.charts
@pytest.mark.usefixtures("only_metrics")
def test_a_hostile_metric_is_text(tmp_path: Path) -> None:
    """A name has no markup, TeX or text direction, and is cut to the length of an axis."""
    name = 'val_<script>alert(1)</script>"$\\frac{1}{2}$\u202e\n' + "x" * 5000
    page = html.render(report_of(tmp_path, [{name: 1.0}, {name: 2.0}]))
    (chart,) = re.findall(r'id="metrics".*?</section>', page, re.DOTALL)
    assert "<script" not in chart
    assert not set(chart) & set("\u202e")
    assert "x" * 200 not in chart
    assert "alert" in chart


@pytest.mark.charts
@pytest.mark.usefixtures("only_metrics")
def test_a_loss_over_decades_has_numbers_beside_it(tmp_path: Path) -> None:
    """Labels are numbers such as 0.1, not TeX, which is off because users choose names."""
    shown = html.render(report_of(tmp_path, [{"val_loss": 10.0**-i} for i in range(6)]))
    assert "mathdefault" not in shown
    labels = re.findall(r">([0-9.e-]+)</text>", shown.replace("\N{MINUS SIGN}", "-"))
    assert {"0.1", "0.001", "1e-05"} <= set(labels)
