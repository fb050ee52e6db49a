"""The list of charts, which page, pictures and TensorBoard share."""

import io
import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from energy_callbacks.report import save
from energy_callbacks.report.build import build
from energy_callbacks.report.charts import catalogue
from energy_callbacks.report.charts.drawing import figure_png
from energy_callbacks.report.charts.palette import PAPER, phase_colours
from energy_callbacks.report.charts.plots import power_over_time
from energy_callbacks.report.render import html
from tests.report.journals import Attempt, write
from tests.report.render.test_html import HOSTILE

pytestmark = pytest.mark.charts


def known(report) -> list[str]:
    """Returns the names of the charts that can be drawn."""
    names = [chart.name for chart in catalogue.CHARTS if chart.draw(report) is not None]
    assert {"power", "phases", "phase_power"} <= set(names)
    return names


def test_each_chart_is_a_picture_beside_the_report(tuned, tmp_path):
    """PNG files have the names of the charts, 1500 pixels and a light background."""
    paths = save(tuned, tmp_path, ["png"])
    names = [*known(tuned), "batch_sizes", "batch_sizes_2"]
    assert [path.name for path in paths] == [f"energy_report_{name}.png" for name in names]
    paper = tuple(bytes.fromhex(PAPER[1:]))
    for path in paths:
        with Image.open(path) as picture:
            assert picture.format == "PNG"
            assert picture.width == pytest.approx(1504, abs=2)
            assert picture.convert("RGB").getpixel((2, picture.height - 2)) == paper


def test_a_stem_names_the_pictures(report, monkeypatch, tmp_path):
    """save(report, "energy", ["png"]) writes energy_power.png, also with a dot in the name."""
    monkeypatch.setattr(catalogue, "CHARTS", catalogue.CHARTS[:1])
    assert save(report, tmp_path / "run-1.5", ["png"]) == [tmp_path / "run-1.5_power.png"]


def test_the_page_has_the_same_charts(report, plain_page):
    """The page has the charts in the order of the list."""
    found = re.findall(r'class="panel chart" id="([^"]+)"', plain_page)
    assert found == known(report)


def test_a_new_chart_is_one_line(report, monkeypatch, tmp_path):
    """A chart that is added to the list is on the page and a file."""
    chart = catalogue.Chart(name="new", title="New", draw=power_over_time)
    for module in (catalogue, html):
        monkeypatch.setattr(module, "CHARTS", (chart,))
    assert 'id="new"' in html.render(report)
    assert (tmp_path / "energy_report_new.png") in save(report, tmp_path, ["png"])


def test_a_run_of_which_nothing_is_known_has_no_picture(tmp_path):
    """Without data there are no pictures."""
    write(tmp_path, Attempt(devices=()))
    assert save(build(tmp_path), tmp_path, ["png"]) == []


def _pixels(png: bytes) -> "np.ndarray":
    with Image.open(io.BytesIO(png)) as picture:
        return np.asarray(picture.convert("RGB"))


def test_a_picture_says_which_colour_is_which_phase(report):
    """A picture has no page around it, so it has a legend of the phases below the strip."""
    name, png = next(catalogue.pictures(report))
    assert name == "power"
    pink = bytes.fromhex(phase_colours(["validation"])["validation"][1:])
    rows = np.flatnonzero((_pixels(png) == tuple(pink)).all(axis=2).any(axis=1))
    assert np.count_nonzero(np.diff(rows) > 1) == 1  # two bands of rows: strip and legend


def test_a_picture_has_a_title(report):
    """The title names chart and run; a hostile or very long name does not change the size."""
    titles = ("", "Power over time · resnet", HOSTILE * 20)
    plain, titled, hostile = (
        figure_png(power_over_time(report), title=title, dpi=80.0) for title in titles
    )
    assert len({_pixels(png).shape for png in (plain, titled, hostile)}) == 1
    assert len({plain, titled, hostile}) == 3


@pytest.mark.parametrize(("kind", "head"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_vector_graphics_are_the_same_every_time(report, monkeypatch, tmp_path, kind, head):
    """Each chart is a file with embedded fonts, of the width of the text, without a date."""
    paths = save(report, tmp_path, [kind])
    assert [path.name for path in paths] == [
        f"energy_report_{name}.{kind}" for name in known(report)
    ]
    first = paths[0].read_bytes()
    assert first.startswith(head)
    monkeypatch.setattr(catalogue, "CHARTS", catalogue.CHARTS[:1])
    assert save(report, tmp_path, [kind])[0].read_bytes() == first
    if kind == "svg":
        assert b"<text" not in first  # letters are paths, which need no fonts
        assert b'width="468pt"' in first  # 6.5 inches
        ET.fromstring(first.decode())
    else:
        assert b"/Type3" not in first
        assert b"/CreationDate" not in first
