"""Charts: areas equal the joules of the report; SVG is reproducible and escaped."""

import re
import subprocess
import sys
from dataclasses import replace
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from energy_callbacks.report.build import build
from energy_callbacks.report.charts import drawing, palette, plots
from energy_callbacks.report.charts.bands import MAX_BANDS, bands
from energy_callbacks.report.model.power_limit import PowerChange
from tests.report.journals import CPU, GPU, TRAIN, Attempt, write

HOSTILE = "<script>alert(1)</script> & \"quotes\" 'single' $x^2$ \u202e\n_x"


def _joules(band) -> float:
    return float(np.sum(np.diff(band.edges_s) * np.asarray(band.power_w)))


def test_the_area_of_a_band_is_the_energy_of_its_device(report):
    """The sum of watts times seconds over all bins is the energy, also with few bins."""
    for max_bins in (480, 7):
        gpu, cpu = bands(report, max_bins)
        assert _joules(gpu) == pytest.approx(report.energy.gpu.energy_j, rel=1e-6)
        assert _joules(cpu) == pytest.approx(report.energy.host.energy_j, rel=1e-6)
        assert len(gpu.power_w) <= max_bins


def test_bands_share_their_edges_and_know_what_is_estimated(report):
    """All bands have the same edges; a CPU whose power is modelled is estimated."""
    gpu, cpu = bands(report, 480)
    assert gpu.edges_s == cpu.edges_s
    assert (gpu.is_estimated, cpu.is_estimated) == (False, True)


def test_many_devices_become_few_bands_with_the_same_energy(tmp_path):
    """Sixteen GPUs on two hosts become a band for each host."""
    for rank, host in enumerate(("node1", "node2")):
        cards = tuple(
            replace(GPU, key=f"gpu{i}", uuid=f"GPU-{host}-{i}", index=i) for i in range(8)
        )
        stretch = replace(TRAIN, power_w={card.key: 100.0 for card in cards})
        write(tmp_path, Attempt(host=host, rank=rank, devices=cards, stretches=(stretch,)))
    found = bands(build(tmp_path), 480)
    assert len(found) == 2 <= MAX_BANDS
    assert sum(map(_joules, found)) == pytest.approx(16 * 100.0 * 60.0, rel=1e-6)


def test_later_attempts_are_marked(tmp_path):
    """A line marks the start of the second attempt; phases end where the curves end."""
    first = Attempt(stretches=(replace(TRAIN, phase="before"),))
    write(tmp_path, first)
    write(tmp_path, Attempt(attempt=2, unix_s=first.unix_s + 600.0))
    unseen = (replace(TRAIN, phase="unseen", power_w={}),)
    write(tmp_path, Attempt(attempt=3, unix_s=first.unix_s + 900.0, devices=(), stretches=unseen))
    report = build(tmp_path)
    assert "unseen" in {span.phase for span in report.timeline}
    figure = plots.power_over_time(report)
    _, strip = figure.axes
    assert strip.get_legend_handles_labels()[1] == ["before", "idle", "train"]
    drawn = drawing.figure_svg(figure)
    assert "attempt 2" in drawn
    assert "attempt 1" not in drawn


def test_a_report_without_curves_has_no_charts(tmp_path):
    """Without devices there are no charts."""
    write(tmp_path, Attempt(devices=()))
    report = build(tmp_path)
    assert plots.power_over_time(report) is None
    assert plots.energy_by_phase(report) is None


@pytest.mark.parametrize("draw", [plots.power_over_time, plots.energy_by_phase])
@pytest.mark.parametrize("width_in", [9.4, 4.3])
def test_the_svg_is_the_same_each_time_and_parses(report, draw, width_in):
    """Two renderings are byte-identical, without dates or random ids, and valid XML."""
    first, second = (
        drawing.figure_svg(draw(report, width_in=width_in), name="a") for _ in range(2)
    )
    assert first == second
    assert first.startswith("<svg")
    assert ET.fromstring(first).get("viewBox")
    assert "<metadata" not in first


def test_two_charts_of_a_page_share_no_id(report):
    """Ids of clip paths and hatches are unique in a page with two charts."""
    figures = (plots.power_over_time(report), plots.energy_by_phase(report))
    ids = [
        set(re.findall(r' id="([^"]+)"', drawing.figure_svg(figure, name=name)))
        for figure, name in zip(figures, ("power", "phases"), strict=True)
    ]
    assert all(ids)
    assert not ids[0] & ids[1]


def test_text_and_axes_take_their_colour_from_css(report):
    """CSS can change the colour of every text, for dark mode."""
    svg = drawing.figure_svg(plots.power_over_time(report))
    assert "var(--chart-ink, #1b2631)" in svg
    assert re.findall(r"fill: #1b2631", svg) == []


def test_a_hostile_name_is_text_and_not_markup(tmp_path):
    """A name with a script, dollar signs and line ends becomes one label."""
    stretch = replace(TRAIN, phase=HOSTILE)
    cpu = replace(CPU, name=HOSTILE)
    write(tmp_path, Attempt(stretches=(stretch,), devices=(GPU, cpu), run_name=HOSTILE))
    report = build(tmp_path)
    for figure in (plots.power_over_time(report), plots.energy_by_phase(report)):
        svg = drawing.figure_svg(figure, title=HOSTILE)
        names = {element.tag.rpartition("}")[2] for element in ET.fromstring(svg).iter()}
        assert "script" not in names
        assert "\u202e" not in re.sub(r'aria-label="[^"]*"', "", svg)


def test_a_user_style_does_not_change_our_charts(report):
    """TeX and pink axes in the user's settings do not affect our charts."""
    import matplotlib as mpl

    plain = drawing.figure_svg(plots.energy_by_phase(report))
    with mpl.rc_context({"text.usetex": True, "axes.edgecolor": "pink", "font.size": 40.0}):
        styled = drawing.figure_svg(plots.energy_by_phase(report))
        assert mpl.rcParams["font.size"] == 40.0
    assert styled == plain


def test_no_pyplot_is_imported_and_nothing_heavy_at_import():
    """Importing the package does not load matplotlib; drawing does not load pyplot."""
    code = (
        "import sys, energy_callbacks.report\n"
        "heavy = {'matplotlib', 'jinja2', 'pydantic', 'rich', 'pandas', 'codecarbon'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "from energy_callbacks.report.charts import drawing, palette, plots\n"
        "with drawing.style(): pass\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_phases_of_the_vocabulary_keep_their_colour():
    """Known phases have fixed colours; unknown names get different ones."""
    first = palette.phase_colours(["warm-up", "train"])
    assert first["train"] == palette.phase_colours(["train", "idle"])["train"]
    assert len(set(palette.phase_colours(["a", "b", "train", "idle"]).values())) == 4


def test_a_shortened_path_goes_through_the_same_points() -> None:
    """Steps become H and V; curves and slopes do not change."""
    steps = ' d="M 1.23456 2.0 \nL 1.23456 3.999 \nL 5.5 3.999 \nL 6.5 4.5 \nz\n"'
    found = re.sub(r' d="[^"]*"', drawing._shorter, steps)
    assert found == ' d="M1.23 2.0V3.99H5.5L6.5 4.5z"'
    curve = ' d="M 1.0 2.0 \nC 1.0 2.0 3.0 2.0 3.0 4.0 \nL 3.0 5.0 \n"'
    assert re.sub(r' d="[^"]*"', drawing._shorter, curve) == curve.replace("\n", "")


@pytest.mark.parametrize(
    ("energy_j", "unit"), [(90.0, "mWh"), (3600.0, "Wh"), (3.5e6, "Wh"), (3.7e6, "kWh")]
)
def test_an_axis_of_energy_has_numbers_that_can_be_read(energy_j: float, unit: str) -> None:
    """25 mWh, 1 Wh, 972 Wh, 1.03 kWh: values lie between 1 and 1000."""
    scale_j, name = drawing.energy_unit(energy_j)
    assert name == unit
    assert 1.0 <= energy_j / scale_j < 1000.0


@pytest.mark.parametrize("width_in", [9.4, 4.3])
def test_the_page_has_no_space_for_a_legend_that_it_hides(report, width_in):
    """The label of the time axis is at the lower edge of the SVG, with a margin below 0.1 in."""
    figure = plots.power_over_time(report, width_in=width_in)
    drawing.figure_svg(figure)
    label = figure.axes[-1].xaxis.label.get_window_extent()
    assert label.y0 / figure.dpi < 0.1


def test_phases_that_are_not_resolved_are_labelled_with_their_bound(report):
    """A bar has the share of its phase; a bar that is too short to measure, an upper bound."""
    train = next(phase for phase in report.phases if phase.name == "train")
    total = replace(train.total, stderr_j=train.total.energy_j)
    figure = plots.energy_by_phase(replace(report, phases=(train, replace(train, total=total))))
    labels = [text.get_text() for text in figure.axes[0].texts]
    assert labels[0].endswith("%")
    assert labels[1].startswith("< ")


def test_marks_after_the_last_reading_are_left_out(report):
    """Their labels would be beside the panel, which shrinks to make room for them."""
    [attempt] = report.attempts
    late = replace(
        report,
        attempts=(attempt, replace(attempt, attempt=2, offset_s=500.0)),
        power_changes=(PowerChange(t_s=600.0, knob="limit", value=200.0, why="trial"),),
    )
    figure, usual = plots.power_over_time(late), plots.power_over_time(report)
    assert not figure.axes[0].texts
    assert drawing.figure_svg(figure, name="x") == drawing.figure_svg(usual, name="x")


def test_a_phase_that_the_lead_process_lacks_has_no_power(report):
    """Its time is not known, because times are those of the lead process."""
    first, *others = report.phases
    timeless = replace(report, phases=(replace(first, duration_s=0.0), *others))
    [axes] = plots.power_by_phase(timeless).axes
    assert len(axes.get_yticklabels()) == len(others)
    assert plots.power_by_phase(replace(timeless, phases=timeless.phases[:1])) is None
