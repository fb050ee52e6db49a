"""Pictures of the first screen of a report: ``python -m tests.report.first_screen [FOLDER]``.

Draws the reports of three runs in Chromium, in a window of 1280 x 800, and writes a PNG file of
each into the folder (default: ``docs/images``):

- ``demo``: the command ``energy-callbacks demo``, about 20 s;
- ``gpu``: a training of two minutes on an H200 that the simulated NVML library plays in virtual
  time (``tests/fake_nvml``);
- ``killed``: a longer demo, killed by ``kill -9`` after 15 s.

``test_first_screen.py`` checks the position of the answer and the advice on these pages. There, the
demo is a journal with the same devices and warnings, and the killed run is the beginning of the
journal of the run ``gpu``.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.records import Device
from energy_callbacks.report import build
from energy_callbacks.report.render import html
from energy_callbacks.sensing.sources.nvidia.source import NvmlSource
from energy_callbacks.testing import ScriptedSource
from tests.fake_nvml import FakeNvml, Scenario, Square, h200
from tests.fake_nvml.scenario import card_uuid
from tests.fake_nvml.test_fake_card import CardClock
from tests.report.journals import CPU, MODEL, PROCESS, Attempt, Stretch, write

IMAGES = Path(__file__).parents[2] / "docs" / "images"
WINDOW = {"width": 1280, "height": 800}
# One step takes a second, of which it waits for data for the last quarter.
STEP_S, WAIT_S, STEPS = 1.0, 0.25, 120
# Each validation takes this time, in seconds, after this number of steps.
VALIDATION_S, VALIDATE_EVERY = 4.0, 20
DEMO = [sys.executable, "-P", "-m", "energy_callbacks", "demo"]
RUN = Path("lightning_logs/version_0/energy")
KILLED_AFTER_S = 15.0
# A time after the end of every run, so that a run whose journal has no last line counts as killed.
LATER_UNIX_S = 4e9


def play_gpu(folder: Path) -> Path:
    """Train for two minutes on a simulated H200, and return the run folder."""
    power = Square(low_w=180.0, high_w=640.0, period_s=STEP_S, duty=1.0 - WAIT_S / STEP_S)
    card = h200(power, memory_used_bytes=60.0 * 2**30)
    nvml = FakeNvml(Scenario(cards=(card,)), folder)
    try:
        clock = CardClock(nvml.time)
        cpu = Device(key="cpu0", kind="cpu", scope="host", name="Xeon", origin="estimated")
        sources = [
            NvmlSource(clock, card_uuid(0)),
            ScriptedSource(clock, power_w=lambda _: 150.0, device=cpu, sensor=MODEL),
        ]
        config = EnergyConfig(
            report_dir=folder / "gpu", country="DEU", price_per_kwh=0.3, run_name="resnet50"
        )
        with EnergyMeter(config=config, sources=sources, clock=clock) as meter:
            _train(meter, clock)
    finally:
        nvml.close()
    return folder / "gpu"


def _train(meter: EnergyMeter, clock: CardClock) -> None:
    with meter.phase("train"):
        for step in range(1, STEPS + 1):
            meter.data_ready()
            clock.advance(STEP_S - WAIT_S)
            meter.step(samples=256)
            meter.batch_done()
            clock.advance(WAIT_S)
            if step % VALIDATE_EVERY == 0:
                with meter.phase("validation"):
                    clock.advance(VALIDATION_S)


def cut(folder: Path, share: float = 0.6) -> Path:
    """Shorten the only journal of a run folder, as if its process had been killed."""
    [path] = journal.find(folder)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: int(share * len(lines))]))
    return folder


def write_demo_like(folder: Path) -> Path:
    """Write the journal of a machine without sensors, with the warnings that a demo has."""
    train = Stretch(phase="train", duration_s=18.0, power_w={"cpu0": 25.0})
    attempt = Attempt(
        run_name="digits",
        devices=(CPU, PROCESS),
        stretches=(train,),
        wait_s=0.009,
        relative_error=1.0,
        unavailable=[
            (
                "NVIDIA GPU",
                "no NVIDIA driver is found (libnvidia-ml.so.1 is missing)",
                "install the driver, or start the container with GPUs (docker run --gpus all)",
            ),
            ("RAPL", "no RAPL energy counter below /sys/class/powercap", "mount it " * 30),
        ],
        warnings=[("short_span", "The logged energies per step have a random error of 153 %.")],
    )
    write(folder, attempt)
    return folder


def run_demo(folder: Path) -> Path:
    """Run the demo, and return its run folder."""
    subprocess.run([*DEMO, "--out", str(folder)], check=True, stdout=subprocess.DEVNULL)
    return folder / RUN


def kill_demo(folder: Path) -> Path:
    """Start a demo that would run for hours, kill it, and return its run folder."""
    command = [*DEMO, "--epochs", "100000", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not journal.find(folder / RUN):
            time.sleep(0.1)
        time.sleep(KILLED_AFTER_S)
        os.kill(process.pid, signal.SIGKILL)
    return folder / RUN


def write_page(run_folder: Path, file: Path) -> Path:
    """Write the page of a run that has ended, and return its path."""
    file.write_text(html.render(build(run_folder, now_unix_s=LATER_UNIX_S)), encoding="utf-8")
    return file


@contextmanager
def chromium() -> Iterator[Any]:
    """Start Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


def main() -> None:
    """Write the three pictures."""
    images = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        place = Path(scratch)
        runs = {
            "gpu": play_gpu(place),
            "demo": run_demo(place / "demo"),
            "killed": kill_demo(place / "killed"),
        }
        for name, folder in runs.items():
            page = browser.new_page(viewport=WINDOW)
            page.goto(write_page(folder, place / f"{name}.html").as_uri())
            picture = images / f"first-screen-{name}.png"
            page.screenshot(path=picture)
            print(f"{picture}: {picture.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
