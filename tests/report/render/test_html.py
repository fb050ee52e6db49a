"""The HTML page: self-contained, without scripts, and with every name escaped."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.records import Device
from energy_callbacks.report.build import build
from energy_callbacks.report.model.amounts import Forecast
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.recommendation import Advice
from energy_callbacks.report.model.runs import Imbalance, ReportWarning, UnavailableSensor
from energy_callbacks.report.model.schema import EnergyReport, to_json
from energy_callbacks.report.render import html
from energy_callbacks.report.render.html import from_html, render
from tests.report.journals import CPU, GERMANY, GPU, IDLE, PROCESS, TRAIN, Attempt, Window, write

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> \"double\" 'single' </script><!-- "
    "{{ 7*7 }} \u202edesrever\u2066 line\nend \u2028 $\\frac{1}{2}$ & &amp; \x1b[31m"
)
CURVE = BatchSizeCurve(
    size=8,
    why="the knee",
    objective="energy",
    points=(
        BatchSizePoint(
            size=8, accumulation=1, fits=True, reason="", samples_per_s=1.0,
            samples_per_s_error=0.1, scope="gpu", power_w=1.0, j_per_sample=None, peak_bytes=1,
        ),
    ),
    memory_bytes=None,
    duration_s=1.0,
    energy_j=1.0,
)  # fmt: skip
VOID = {"meta", "br", "img", "link", "input", "hr", "path", "rect", "use", "g"}


class _Page(HTMLParser):
    """Elements, attributes and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.data = ""
        self._inside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._inside.append(tag)

    def handle_endtag(self, tag):
        if tag in self._inside:
            while self._inside.pop() != tag:
                pass

    def handle_data(self, data):
        if "script" in self._inside:
            self.data += data
        elif not {"style", "svg", "title"} & set(self._inside):
            self.words.append(data)

    @property
    def text(self) -> str:
        return re.sub(r"\s+", " ", " ".join(self.words))


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> EnergyReport:
    """A run whose names, from user and driver, are all hostile."""
    gpu: Device = replace(GPU, name=HOSTILE, notes=(HOSTILE,))
    attempt = Attempt(
        run_name=HOSTILE,
        tags={HOSTILE: HOSTILE},
        error=HOSTILE,
        status="failed",
        devices=(gpu, replace(CPU, name=HOSTILE), PROCESS),
        stretches=(replace(TRAIN, phase=HOSTILE), TRAIN),
        windows=(Window(name=f"w{HOSTILE}", start_s=1.0, end_s=2.0, energy_j={"gpu0": 10.0}),),
        warnings=((HOSTILE, HOSTILE),),
        unavailable=((HOSTILE, HOSTILE, HOSTILE),),
        config={"place": GERMANY, HOSTILE: HOSTILE},
        metrics=[
            (20.0 + i, {f"val_{HOSTILE}"[:120]: 1.0 + i, HOSTILE[:120]: 2.0}, i, i) for i in (1, 2)
        ],
    )
    folder = tmp_path_factory.mktemp("hostile")
    write(folder, attempt)
    return build(folder)


@pytest.fixture(scope="module")
def hostile_report(report: EnergyReport) -> EnergyReport:
    """A report whose strings are all hostile, except those with fixed values."""
    report = replace(
        report,
        metrics=(metric("val_loss"), metric("loss")),
        forecast=Forecast(
            after="a tenth", steps=1, planned_steps=2, energy_j=1.0, energy_error_j=1.0,
            duration_s=1.0, duration_error_s=1.0, emissions_kg=1.0, emissions_low_kg=1.0,
            emissions_high_kg=1.0,
        ),
        imbalances=(
            Imbalance(
                attempt=1, host="h", rank=1, quantity="gpu_power", value=1.0, median=2.0,
                error=0.1, message="m",
            ),
        ),
        unavailable=(UnavailableSensor(source="s", reason="r", fix="f"),),
        batch_sizes=(CURVE,),
        advice=(Advice(code="idle", message="m", fix="f", saves_j=1.0),),
        warnings=(ReportWarning(code="c", message="m", fix="f"),),
    )  # fmt: skip
    plain = json.loads(to_json(report))
    attacked = _attacked(plain, {})
    adapter = TypeAdapter(EnergyReport)
    try:
        adapter.validate_python(attacked)
    except ValidationError as error:
        for one in error.errors():
            _put_back(attacked, plain, one["loc"])
    found = adapter.validate_python(attacked)
    assert to_json(found).count("alert(1)") > 90
    return found


# Pages with their charts, drawn once.


@pytest.fixture(scope="module")
def hostile_page(hostile_run: EnergyReport) -> str:
    """The page of a run with hostile names."""
    return render(hostile_run)


@pytest.fixture(scope="module")
def all_hostile_page(hostile_report: EnergyReport) -> str:
    """The page of a report whose strings are all hostile."""
    return render(hostile_report)


@pytest.fixture(scope="module")
def long_page(report: EnergyReport) -> str:
    """The page, with one chart, of a run whose name has a megabyte."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "CHARTS", html.CHARTS[:1])
        return render(replace(report, run=replace(report.run, name="x" * 1_000_000)))


def metric(name: str) -> Metric:
    """Ten points of a metric."""
    ten = tuple(float(i) for i in range(10))
    return Metric(name=name, t_s=ten, step=(None,) * 10, epoch=ten, energy_j=ten, value=ten)


def _attacked(value: Any, known: dict[str, str]) -> Any:
    """Returns a JSON value with hostile strings; equal strings stay equal, keys do not change."""
    if isinstance(value, str):
        return known.setdefault(value, f"{len(known)} {HOSTILE}")
    if isinstance(value, list):
        return [_attacked(item, known) for item in value]
    if isinstance(value, dict):
        attacked = {key: _attacked(item, known) for key, item in value.items()}
        if "tags" in attacked:
            attacked["tags"] = {HOSTILE: HOSTILE, "many words": HOSTILE}
        if "environment" in attacked:
            attacked["environment"] = {HOSTILE: HOSTILE}
        return attacked
    return value


def _put_back(attacked: Any, plain: Any, place: Sequence[str | int]) -> None:
    *way, last = place
    for step in way:
        attacked, plain = attacked[step], plain[step]
    attacked[last] = plain[last]


def test_a_page_gives_its_report_back(report, plain_page):
    """Reading the embedded data returns an equal report."""
    assert from_html(plain_page) == report


def test_a_hostile_page_gives_its_report_back(hostile_run, hostile_page):
    """Names with '</script>' and '<!--' do not break the embedded data."""
    assert from_html(hostile_page) == hostile_run
    assert hostile_run.run.name == HOSTILE


@pytest.mark.charts
@pytest.mark.parametrize("where", ["hostile_page", "all_hostile_page"])
def test_no_hostile_name_becomes_markup(request, where):
    """The only script element is the data; there are no images, handlers or comments."""
    text = request.getfixturevalue(where)
    page = _Page(text)
    tags = [tag for tag, _ in page.elements]
    assert tags.count("script") == 1
    assert "img" not in tags
    names = {name for _, attributes in page.elements for name in attributes}
    assert not [name for name in names if name.startswith("on")]
    assert "<!--" not in text
    assert "{{ 7*7 }}" in page.text
    assert "alert(1)" in page.text
    shown = text.partition('<script type="application/json"')[0]
    assert not set(shown) & set("\u202e\u2066\u2028\x1b")


def test_names_cannot_turn_the_direction_of_the_page(hostile_page):
    """Right-to-left marks and control characters are not shown; names are isolated in <bdi>."""
    shown = hostile_page.partition('<script type="application/json"')[0]
    assert not set(shown) & set("\u202e\u2066\u2028\x1b")
    assert "desrever" in shown
    outside = re.sub(r"<bdi>.*?</bdi>|<svg.*?</svg>|<title>.*?</title>", "", shown, flags=re.DOTALL)
    assert "desrever" not in outside


def test_the_embedded_data_hold_no_character_of_html(hostile_page):
    """The embedded JSON has no <, >, & or line separators of JavaScript."""
    data = _Page(hostile_page).data
    assert not set(data) & set("<>&\u2028\u2029")
    assert json.loads(data)["run"]["name"] == HOSTILE


def test_the_page_needs_nothing_from_outside(plain_page):
    """There are no links, sources or imports, and the policy forbids them."""
    page = _Page(plain_page)
    policy = next(
        attributes["content"]
        for tag, attributes in page.elements
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    for tag, attributes in page.elements:
        assert tag not in {"link", "iframe", "object", "embed", "base"}
        assert not {"src", "srcset", "action"} & set(attributes)
        for name in ("href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    addresses = set(re.findall(r"https?://[^\s\"')]+", plain_page))
    assert addresses <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_the_answer_comes_first_then_advice_headline_notes_charts_and_tables(plain_page):
    """The order of the page."""
    marks = (
        "<h1>", 'class="answer"', ">What to change<", 'class="cards"', ">Notes<", 'id="power"',
        ">Phases<", ">Devices<", ">Statistics and method<",
    )  # fmt: skip
    places = [plain_page.index(mark) for mark in marks]
    assert places == sorted(places)


def test_the_headline_is_on_the_page(plain_page):
    """Energy with its error and badge, emissions with place and factor, joules, speed, memory."""
    text = _Page(plain_page).text
    for words in (
        "8.778 ± 0.088 Wh",
        "measured",
        "estimated",
        "4.06 gCO2e",
        "Germany, 381 g/kWh",
        "1.48 J",
        "Samples per second",
        "44.7 GiB",
    ):
        assert words in text


def test_an_unknown_place_is_an_interval_in_words(tmp_path):
    """Without a location the page shows a range instead of one figure."""
    write(tmp_path, Attempt())
    text = _Page(render(build(tmp_path))).text
    assert re.search(r"[\d.]+ to [\d.]+ m?gCO2e", text)
    assert "location not set" in text


def test_what_is_not_known_is_no_zero(tmp_path):
    """Without a sensor the page shows 'not known' instead of 0."""
    write(tmp_path, Attempt(devices=(), samples_per_step=None))
    text = _Page(render(build(tmp_path))).text
    assert "not known" in text
    assert not re.search(r"\b0(\.0+)? m?Wh", text)


def test_a_table_has_headers_with_scopes(plain_page):
    """Every header cell has the scope of a column or a row."""
    cells = [attributes for tag, attributes in _Page(plain_page).elements if tag == "th"]
    assert len(cells) > 20
    assert {cell.get("scope") for cell in cells} == {"col", "row"}


def test_a_huge_name_does_not_make_a_huge_page(long_page):
    """A name of a megabyte is cut on the page and complete in the data."""
    assert len(long_page) < 1_500_000
    assert from_html(long_page).run.name == "x" * 1_000_000


@pytest.mark.charts
def test_a_page_of_an_hour_stays_below_400_kb(tmp_path):
    """7200 rows of a GPU, a CPU and the process."""
    write(tmp_path, Attempt(stretches=(replace(TRAIN, duration_s=3600.0),)))
    assert len(render(build(tmp_path)).encode()) < 400_000


@pytest.mark.charts
def test_a_page_of_eight_cards_stays_below_400_kb(tmp_path):
    """An hour of eight cards, whose phase changes every ten seconds."""
    cards = tuple(replace(GPU, key=f"gpu{n}", index=n, uuid=f"GPU-{n}") for n in range(8))
    power_w = {card.key: 123.456 + 7.89 * card.index for card in cards}
    train = replace(TRAIN, duration_s=10.0, power_w=power_w)
    write(tmp_path, Attempt(devices=cards, windows=(), row_s=2.0, stretches=(train, IDLE) * 120))
    assert len(render(build(tmp_path)).encode()) < 400_000


def test_a_foreign_page_is_refused():
    """For another HTML file the error says what is missing and what to pass."""
    with pytest.raises(JournalError, match="embeds no element 'energy-report'; give"):
        from_html("<html><body>hello</body></html>")


def test_a_notebook_shows_the_page_in_a_frame(report):
    """The frame has the page as an attribute and allows no scripts."""
    ((tag, attributes),) = _Page(report._repr_html_()).elements
    assert tag == "iframe"
    assert attributes["sandbox"] is None
    assert from_html(attributes["srcdoc"] or "") == report


@pytest.mark.charts
@pytest.mark.browser
@pytest.mark.parametrize("what", ["plain_page", "hostile_page", "all_hostile_page", "long_page"])
def test_a_browser_shows_the_page_from_disk(tmp_path, request, browser, what):
    """No messages, dialogs or requests; headline and chart are visible and not cut."""
    file = tmp_path / "energy_report.html"
    file.write_text(request.getfixturevalue(what), encoding="utf-8")
    for scheme, width in (("light", 1400), ("dark", 380)):
        viewport = {"width": width, "height": 900}
        with browser.new_context(color_scheme=scheme, viewport=viewport) as context:
            _look(context.new_page(), file, width)


def _look(page, file: Path, width: int) -> None:
    noise: list[str] = []
    page.on("console", lambda message: noise.append(message.text))
    page.on("pageerror", lambda error: noise.append(str(error)))
    page.on("dialog", lambda dialog: noise.append(dialog.message))
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(file.as_uri())
    card = page.locator(".card.lead")
    assert card.is_visible()
    assert "Wh" in card.inner_text()
    chart = page.locator(".wide svg" if width > 560 else ".narrow svg").first
    assert chart.is_visible()
    assert chart.bounding_box()["width"] > 0.7 * (min(width, 1080) - 80)
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert noise == []
    assert requests == [file.as_uri()]
