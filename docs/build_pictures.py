"""Makes the pictures of the README: the report of one training, and its curves in TensorBoard.

``python docs/build_pictures.py``. Both are opened in Chromium, from the journal and the event
files of the same training, which ``images/h100-resnet18.tar.gz`` contains: ``train`` of
``tests/gpu/train_resnet.py`` for 90 s on an H100. So their figures agree.
"""

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from playwright.sync_api import Page, sync_playwright

from energy_callbacks.report import build, save

IMAGES = Path(__file__).parent / "images"
TRAINING = IMAGES / "h100-resnet18.tar.gz"
SIZE = {"width": 1280, "height": 800}
CURVES = (
    "train_loss", "energy/total_wh", "emissions/total_g",
    "val_accuracy", "power/gpu_w", "throughput/data_wait_fraction",
)  # fmt: skip
# TensorBoard keeps its settings in the browser. Narrow side bar, no table below the curves.
SETTINGS = {
    "timeSeriesSettingsPaneOpened": False,
    "stepSelectorEnabled": False,
    "ignoreOutliers": False,
    "scalarSmoothing": 0,
    "sideBarWidthInPercent": 12,
}


@contextmanager
def tensorboard(folder: Path) -> Iterator[str]:
    """Run TensorBoard on a folder, at a port that it chooses; yields its address."""
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:  # noqa: S603
        assert server.stderr is not None
        address = next(re.finditer(r"http://localhost:\d+/", "".join(_until(server.stderr))))
        try:
            yield address[0]
        finally:
            server.terminate()


def _until(lines: Iterator[str]) -> Iterator[str]:
    """Return lines up to the one with the address."""
    for line in lines:
        yield line
        if "http://" in line:
            return


def picture_of_tensorboard(page: Page, folder: Path, picture: Path) -> None:
    """Pin the curves in TensorBoard, and wait until all of them are drawn."""
    cards = json.dumps([{"plugin": "scalars", "tag": tag} for tag in CURVES])
    settings = json.dumps(json.dumps(SETTINGS))
    page.add_init_script(f"localStorage.setItem('_tb_global_settings', {settings})")
    with tensorboard(folder) as address:
        page.goto(f"{address}?pinnedCards={quote(cards)}#timeseries")
        page.wait_for_function(
            "count => document.querySelectorAll('card-view svg path[d]').length >= count",
            arg=len(CURVES),
        )
        page.wait_for_timeout(2_000)  # the animation of new curves
        page.screenshot(path=picture)


def picture_of_report(page: Page, folder: Path, picture: Path) -> None:
    """Make the report from the journal; its first screen is the picture."""
    save(build(folder), folder, ["html"])
    page.goto((folder / "energy_report.html").as_uri())
    page.screenshot(path=picture)


def main() -> None:
    """Write both pictures to ``images/``."""
    with tempfile.TemporaryDirectory() as name, sync_playwright() as play:
        folder = Path(name)
        with tarfile.open(TRAINING) as archive:
            archive.extractall(folder, filter="data")
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport=SIZE)
        picture_of_tensorboard(page, folder, IMAGES / "tensorboard.png")
        picture_of_report(page, folder / "version_0" / "energy", IMAGES / "report.png")


if __name__ == "__main__":
    main()
