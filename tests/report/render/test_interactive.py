"""The interactive page: the report's figures, self-contained, with every name escaped."""

import re
import sys
from dataclasses import replace

import pytest

from energy_callbacks.cli import main
from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.core.units import watt_hours
from energy_callbacks.report import save
from energy_callbacks.report.build import build
from energy_callbacks.report.charts.plotly_figures import batch_sizes, over_time
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import interactive
from energy_callbacks.report.render.headline import cards
from tests.report.journals import Attempt, write
from tests.report.render import test_html
from tests.report.render.test_html import HOSTILE

hostile_run = test_html.hostile_run
# None of these buttons sends data.
BUTTONS = {
    "Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Autoscale", "Reset axes",
}  # fmt: skip
_TITLES = "buttons => buttons.map(button => button.getAttribute('data-title'))"


def _lines(figure) -> dict[tuple[str, str], dict]:
    """Returns the lines by title of the panel and name of the device."""
    layout = figure["layout"]
    titles = {
        axis.replace("axis", ""): content["title"]["text"]
        for axis, content in layout.items()
        if axis.startswith("yaxis") and "title" in content
    }
    lines = [line for line in figure["data"] if line["type"] == "scatter"]
    return {(titles[line["yaxis"]], line["name"].partition(" ")[0]): line for line in lines}


def test_curves_end_at_the_figures_of_the_report(report):
    """Cumulative energy ends at the energy of each device; peaks are the report's."""
    lines = _lines(over_time(report))
    for device in report.devices[:2]:
        energy_wh = lines["energy (Wh)", device.key]["y"]
        assert energy_wh[0] == 0.0
        assert energy_wh[-1] == pytest.approx(watt_hours(device.energy.energy_j), rel=1e-6)
        assert max(lines["power (W)", device.key]["y"]) == pytest.approx(device.peak_power_w)
    gpu, cpu = report.devices[:2]
    assert max(lines["memory (GiB)", "gpu0"]["y"]) * 2**30 == gpu.memory_peak_bytes
    assert set(lines["busy (%)", "gpu0"]["y"]) == {75.0}
    assert max(lines["temperature (°C)", "gpu0"]["y"]) == gpu.temperature_max_c
    throttled = [share for share in lines["throttled (%)", "gpu0"]["y"] if share is not None]
    assert throttled == pytest.approx([1.0] * len(throttled))
    assert ("busy (%)", cpu.key) not in lines


def test_all_panels_have_one_time_axis(report):
    """Panels zoom together, and the legend hides a device in all panels."""
    figure = over_time(report)
    assert all("xaxis" not in line for line in figure["data"])
    assert figure["layout"]["xaxis"]["range"] == [0.0, 80.0]
    gpu = [line for line in figure["data"] if line["name"].startswith("gpu0")]
    assert len({line["legendgroup"] for line in gpu}) == 1
    assert [line["showlegend"] for line in gpu].count(True) == 1


def test_what_is_estimated_is_dotted_and_says_so(report):
    """Estimated lines are dotted and named as estimated."""
    lines = _lines(over_time(report))
    assert lines["power (W)", "cpu0"]["line"]["dash"] == "dot"
    assert lines["power (W)", "cpu0"]["name"].endswith(", estimated")
    assert lines["power (W)", "gpu0"]["line"]["dash"] == "solid"


def test_a_gap_is_a_hole(report):
    """A line has a gap where values are unknown."""
    curve = report.series[0]
    hole = replace(curve, power_w=(*curve.power_w[:50], None, *curve.power_w[51:]))
    line = _lines(over_time(replace(report, series=(hole, *report.series[1:]))))
    assert line["power (W)", "gpu0"]["y"][51] is None


def test_a_search_for_a_batch_size_has_its_panels(tuned):
    """Sizes that ran have points with errors; the chosen size is marked."""
    figure = batch_sizes(tuned.batch_sizes[0])
    speed, joules, memory = figure["data"]
    assert (speed["x"], speed["y"]) == ([8, 16], [900.0, 1000.0])
    assert joules["error_y"]["array"] == pytest.approx([0.01, 0.01])
    assert memory["y"] == [2.0, 4.0]
    assert {shape["x0"] for shape in figure["layout"]["shapes"]} == {16}


def test_a_run_without_curves_says_so(tmp_path):
    """Without curves the page has no figure and no library."""
    write(tmp_path, Attempt(devices=()))
    page = interactive.render(build(tmp_path))
    assert "This run has no curves." in page
    assert len(page) < 50_000


def test_the_page_is_one_file_of_about_5_mb(report, tmp_path):
    """The page is written beside the report, loads nothing, and is reproducible."""
    [path] = save(report, tmp_path, ["interactive"])
    assert path.name == "energy_report_interactive.html"
    assert 3e6 < path.stat().st_size < 7e6
    assert interactive.render(report) == path.read_text(encoding="utf-8")
    markup = re.sub(r"<script.*?</script>", "<script>", path.read_text(), flags=re.DOTALL)
    assert not re.search(r"\b(src|href|srcset)=", markup)
    assert "default-src 'none'" in markup


def test_without_plotly_the_error_names_the_extra(run_folder, monkeypatch, capsys):
    """The error names the pip command; the other files are written."""

    class Hidden:
        def find_spec(self, name, path=None, target=None):
            if name == "plotly":
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    for name in [name for name in sys.modules if name.partition(".")[0] == "plotly"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Hidden(), *sys.meta_path])
    with pytest.raises(MissingExtraError, match=r"pip install .*\[interactive\]"):
        interactive.render(build(run_folder))
    assert main(["report", str(run_folder), "--interactive"]) == 1
    assert "[interactive]" in capsys.readouterr().err
    assert (run_folder / "energy_report.html").is_file()


@pytest.fixture
def hostile(hostile_run, tuned) -> EnergyReport:
    """A report whose names are all hostile, also in the sentence of a search."""
    curve = replace(tuned.batch_sizes[0], why=HOSTILE)
    # Plotly interprets these tags in names, and these braces in hover texts.
    devices = tuple(replace(one, name=f"<b>%{{x}}</b>{one.name}") for one in hostile_run.devices)
    return replace(hostile_run, batch_sizes=(curve,), devices=devices)


@pytest.mark.browser
@pytest.mark.parametrize("which", ["tuned", "hostile"])
def test_a_browser_draws_the_page_from_disk(tmp_path, request, browser, which):
    """No messages, dialogs or requests; curves, hover and zoom work; names are text."""
    report = request.getfixturevalue(which)
    [file] = save(report, tmp_path, ["interactive"])
    noise: list[str] = []
    requests: list[str] = []
    with browser.new_context(viewport={"width": 1300, "height": 1000}) as context:
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("dialog", lambda dialog: noise.append(dialog.message))
        page.on("request", lambda one: requests.append(one.url))
        page.goto(file.as_uri())
        _look(page, report)
        assert page.locator("img, iframe, object").count() == 0
        assert set(page.locator(".modebar-btn").evaluate_all(_TITLES)) == BUTTONS
    assert noise == []
    assert requests == [file.as_uri()]


def _look(page, report: EnergyReport) -> None:
    name = (report.run.name or "").partition(" line")[0][:60]
    assert page.locator("h1 bdi").inner_text().startswith(name[:40])
    assert "Energy report, interactive" in page.title()
    shown = page.locator(".card .value").all_inner_texts()
    assert shown == [card.value for card in cards(report)]
    page.wait_for_selector("#plot-1 .main-svg")
    assert page.locator("#plot-0 .scatterlayer .trace").count() >= 6
    plane = page.locator("#plot-0 .nsewdrag").nth(1)
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.6 * box["width"], middle)
    page.wait_for_selector("#plot-0 .hoverlayer .legendtext")
    hover = page.locator("#plot-0 .hoverlayer").text_content()
    assert "500.0 W" in hover
    assert "Wh" in hover
    assert " GiB" in hover
    for device in report.devices[:2]:
        assert device.name[:16] in hover
    page.mouse.down()
    page.mouse.move(box["x"] + 0.8 * box["width"], middle, steps=5)
    page.mouse.up()
    page.wait_for_function("document.getElementById('plot-0')._fullLayout.xaxis.range[0] > 1")
    low, high = page.evaluate("document.getElementById('plot-0')._fullLayout.xaxis.range")
    assert (high - low) / report.run.duration_s == pytest.approx(0.2, abs=0.05)
