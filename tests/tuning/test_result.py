"""Outputs of a search: table, report, picture, TensorBoard."""

from pathlib import Path

import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.charts.batch_size_plot import batch_size_figure
from energy_callbacks.report.model import schema
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html, text
from energy_callbacks.tuning import BatchSizeResult, tune_batch_size
from tests.tuning.simulated import Training


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[BatchSizeResult, EnergyReport]:
    """A search, and the report of its meter; 50 samples fit."""
    training = Training(tmp_path_factory.mktemp("search"), most=50)
    result = tune_batch_size(training.step, max_size=64, meter=training.meter)
    return result, training.meter.report()


def test_the_report_has_the_curve(found: tuple[BatchSizeResult, EnergyReport]) -> None:
    """The curve of the result is in the report, also from its JSON and HTML."""
    result, report = found
    assert report.batch_sizes == (result.curve,)
    assert schema.from_json(schema.to_json(report)).batch_sizes == report.batch_sizes
    assert html.from_html(html.render(report)).batch_sizes == report.batch_sizes


@pytest.mark.charts
def test_text_and_page_tell_it(found: tuple[BatchSizeResult, EnergyReport]) -> None:
    """A row for each trial; the page has the picture twice, for wide and narrow windows."""
    result, report = found
    plain, page = text.render(report), html.render(report)
    section = plain[plain.index("\nBatch size\n") :]
    assert section.count("out of memory") == sum(t.status != "ok" for t in result.trials)
    assert all(len(line) <= 80 for line in section.splitlines())
    assert page.count('aria-label="Batch size"') == 2


def test_a_search_without_an_answer_is_told_too(tmp_path: Path) -> None:
    """The reason is shown, and there is no picture."""
    training = Training(tmp_path, most=7)
    with pytest.raises(Exception, match="does not fit"):
        tune_batch_size(training.step, min_size=8, meter=training.meter)
    (curve,) = training.meter.report().batch_sizes
    assert curve.size is None
    assert "make min_size or the model smaller" in curve.sentence
    assert "; 1 trial in " in curve.sentence
    assert batch_size_figure(curve) is None
    assert "make min_size or the model smaller" in html.render(training.meter.report())


def test_a_journal_of_two_searches(found: tuple[BatchSizeResult, EnergyReport], tmp_path) -> None:
    """Both are reported in their order."""
    training = Training(tmp_path, most=50)
    with training.meter:
        for most in (2, 4):
            tune_batch_size(training.step, max_size=most, meter=training.meter)
    folder = training.meter.run_folder
    assert folder is not None
    assert [curve.objective for curve in build(folder).batch_sizes] == ["knee", "knee"]


def test_points_lie_where_they_were_measured(
    found: tuple[BatchSizeResult, EnergyReport],
) -> None:
    """20 ms + 1 ms per sample at 400 W can be read from the picture; errors are drawn."""
    result, _ = found
    throughput, joules, memory = result.figure().axes
    for axes, value in (
        (throughput, lambda size: size / (0.02 + 1e-3 * size)),
        (joules, lambda size: 400.0 * (0.02 + 1e-3 * size) / size),
    ):
        (curve,) = axes.containers
        sizes, values = curve.lines[0].get_data()
        assert len(sizes) == sum(trial.status == "ok" for trial in result.trials)
        assert values == pytest.approx([value(size) for size in sizes], rel=0.03)
        assert curve.has_yerr
    assert memory.get_ylabel() == "peak memory (GiB)"


def test_the_picture_is_a_file(found: tuple[BatchSizeResult, EnergyReport], tmp_path: Path) -> None:
    """The file is a PNG."""
    result, _ = found
    result.save_png(tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_tensorboard_reads_it(found: tuple[BatchSizeResult, EnergyReport], tmp_path: Path) -> None:
    """The curve over the size, the picture, and a session for each size that ran."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    result, _ = found
    result.write_tensorboard(tmp_path)
    curve = EventAccumulator(str(tmp_path)).Reload()
    rates = {event.step: event.value for event in curve.Scalars("tuning/samples_per_s")}
    ran = {trial.size: trial for trial in result.trials if trial.status == "ok"}
    assert set(rates) == set(ran)
    assert rates[result.size] == pytest.approx(result.chosen.samples_per_s)
    assert curve.Tags()["images"] == ["tuning/curve"]
    for size, trial in ran.items():
        session = EventAccumulator(str(tmp_path / f"batch_size_{size}")).Reload()
        assert session.Scalars("tuning/j_per_sample")[0].value == pytest.approx(trial.j_per_sample)
        content = session.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
        start = metadata.parse_session_start_info_plugin_data(content)
        assert start.hparams["batch_size"].number_value == size
