"""Measures the size of a report's page, the time to draw it, and the time to open it in Chromium.

Three runs, whose journals are written as by a training: ten minutes of one card, an hour of one,
and a day of eight, each with losses and accuracies of training and validation. Drawing is the
median processor time of several repeats, after a first one that imports matplotlib. Opening is
the time from the request to the end of layout; messages of the browser's console and requests
other than for the file are counted.

The bars: 400 kB, 2 s for all charts, and in the browser 2 s, no message and no request.
"""

import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from energy_callbacks.report import build
from energy_callbacks.report.model import schema
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render import html
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar
from tests.report.journals import CPU, GERMANY, GPU, PROCESS, Attempt, Stretch, write

PAGE_KB, DRAW_S, OPEN_S = 400.0, 2.0, 2.0
CHROMIUM = shutil.which("chromium")
EPOCHS = 48


@dataclass(frozen=True)
class Page:
    """The page of one run; ``None`` if there is no Chromium with Playwright."""

    run: str
    page_kb: float
    json_kb: float
    draw_s: float
    open_s: float | None
    messages: int | None
    requests: int | None

    def bars(self) -> Iterator[Bar]:
        """Return the bars; without Chromium those of the browser are not judged."""
        yield Bar(name=f"{self.run}: kB of the page", value=self.page_kb, at_most=PAGE_KB)
        yield Bar(name=f"{self.run}: s to draw", value=self.draw_s, at_most=DRAW_S)
        for what, value, limit in (
            ("s to open", self.open_s, OPEN_S),
            ("messages", self.messages, 0),
            ("requests", self.requests, 0),
        ):
            yield Bar(
                name=f"{self.run}: {what}",
                value=math.nan if value is None else value,
                at_most=limit,
                is_judged=value is not None,
            )


def attempt(duration_s: float, cards: int) -> Attempt:
    """Return a training of 48 epochs, each with a validation at its end."""
    gpus = tuple(replace(GPU, key=f"gpu{n}", index=n, uuid=f"GPU-{n}") for n in range(cards))
    epoch_s = duration_s / EPOCHS
    phases = (("train", 0.9 * epoch_s, 520.0), ("validation", 0.1 * epoch_s, 310.0))
    stretches = [
        Stretch(
            phase=name,
            duration_s=length_s,
            power_w={gpu.key: power_w + 7.0 * gpu.index + epoch for gpu in gpus} | {"cpu0": 180.0},
        )
        for epoch in range(EPOCHS)
        for name, length_s, power_w in phases
    ]
    return Attempt(
        run_name=f"{cards} x H200, {duration_s / 3600:g} h",
        devices=(*gpus, CPU, PROCESS),
        stretches=stretches,
        config={"place": GERMANY, "price_per_kwh": 0.3},
        metrics=metrics(duration_s),
        memory_grows=300.0 / duration_s,
        row_s=max(duration_s / 4000.0, 0.5),
    )


def metrics(duration_s: float) -> list[tuple[float, dict[str, float], int, float]]:
    """Return the loss twenty times an epoch and a validation at its end; it overfits at the end."""
    rows = []
    for i in range(1, 20 * EPOCHS + 1):
        epoch = i / 20.0
        loss = 2.3 * math.exp(-epoch / 8.0) + 0.1 + 0.02 * math.sin(7.0 * i)
        values = {"train_loss": loss, "train_accuracy": 1.0 - loss / 2.6, "lr": 1e-3 / (1 + epoch)}
        rows.append((duration_s * i / (20 * EPOCHS) * 0.9999, values, 50 * i, epoch))
        if i % 20 == 0:
            turned = 2.1 * math.exp(-epoch / 5.0) + 0.4 + 0.006 * max(epoch - 16.0, 0.0)
            values = {"val_loss": turned, "val_accuracy": 0.93 - 0.8 * math.exp(-epoch / 4.0)}
            rows.append((duration_s * i / (20 * EPOCHS) * 0.9999, values, 50 * i, epoch))
    return rows


def drawn_s(report: EnergyReport) -> float:
    """Return the processor seconds of drawing a page."""
    start_s = time.process_time()
    html.render(report)
    return time.process_time() - start_s


def measured(name: str, report: EnergyReport, times: int, folder: Path) -> Page:
    """Draw, write and open the page of a report."""
    text = html.render(report)
    file = folder / f"{name.replace(' ', '_')}.html"
    file.write_text(text, encoding="utf-8")
    open_s, messages, requests = opened(file)
    return Page(
        run=name,
        page_kb=len(text.encode()) / 1e3,
        json_kb=len(schema.to_json(report).encode()) / 1e3,
        draw_s=statistics.median(drawn_s(report) for _ in range(times)),
        open_s=open_s,
        messages=messages,
        requests=requests,
    )


def opened(file: Path) -> tuple[float | None, int | None, int | None]:
    """Return the seconds until a browser has laid out the page, its messages and its requests."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None, None, None
    if CHROMIUM is None:
        return None, None, None
    messages: list[str] = []
    requests: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1100, "height": 900})
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto("about:blank")
        start_s = time.perf_counter()
        page.goto(file.as_uri())
        page.evaluate("document.documentElement.getBoundingClientRect().height")
        open_s = time.perf_counter() - start_s
        browser.close()
    return open_s, len(messages), len([url for url in requests if url != file.as_uri()])


def show(pages: Sequence[Page]) -> None:
    """Print the table."""
    print(f"{'run':<22}{'page kB':>9}{'JSON kB':>9}{'draw s':>8}{'open s':>8}  said, asked for")
    for page in pages:
        open_s = "-" if page.open_s is None else f"{page.open_s:.2f}"
        said = "-" if page.messages is None else f"{page.messages}, {page.requests}"
        print(
            f"{page.run:<22}{page.page_kb:>9.0f}{page.json_kb:>9.0f}{page.draw_s:>8.2f}"
            f"{open_s:>8}  {said}"
        )


def main() -> int:
    """Print the table and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--keep", type=Path, help="folder in which the pages are left")
    arguments = parser.parse_args()
    runs = {"10 min, one card": (600.0, 1), "1 h, one card": (3600.0, 1)}
    if not arguments.quick:
        runs["24 h, eight cards"] = (86_400.0, 8)
    pages = []
    with tempfile.TemporaryDirectory() as scratch:
        place = arguments.keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True)
        for name, (duration_s, cards) in runs.items():
            journal = write(Path(scratch) / name, attempt(duration_s, cards))
            times = 1 if arguments.quick else 5
            pages.append(measured(name, build(journal), times, place))
    show(pages)
    found = [bar for page in pages for bar in page.bars()]
    return bars.finish("page", arguments, found, pages=[asdict(page) for page in pages])


if __name__ == "__main__":
    sys.exit(main())
