"""What README, documentation, examples and the demo show of a framework, in its own tests.

They run in the process of the tests, which has imported the framework; README's blocks run in one
that has imported nothing, too.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from energy_callbacks.cli import main
from energy_callbacks.report import build
from tests.docs import examples, pages
from tests.integrations.processes import Script, Spawning, wait


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What ``energy-callbacks demo`` leaves.

    Attributes:
        folder: of its logs, with the run folder ``energy`` in it.
        samples: of training, in one epoch.
        curve: tag of the loss.
    """

    folder: str
    samples: int
    curve: str


class Documented:
    """Tests of a framework.

    Attributes:
        framework: its name in ``energy_callbacks``.
        examples: scripts in ``examples``.
        demo: what its demo leaves.
    """

    framework: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]
    demo: ClassVar[Demo]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Each framework has pages and examples of its own."""
        if "page" in metafunc.fixturenames:
            found = pages.pages_of(metafunc.cls.framework)
            metafunc.parametrize("page", found, ids=[page.name for page in found])
        if "example" in metafunc.fixturenames:
            metafunc.parametrize("example", metafunc.cls.examples)

    @pytest.fixture(autouse=True)
    def _in_an_empty_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)

    def test_blocks_of_a_page_run(self, page: Path) -> None:
        """In one namespace, as a reader would type them."""
        pages.run(page, self.framework)

    def test_the_readme_works_from_nothing(self, tmp_path: Path) -> None:
        """Its blocks run in a process that has imported nothing."""
        readme = str(pages.ROOT / "README.md")
        script = Script(
            module="tests.docs.pages", folder=tmp_path, arguments=(readme, self.framework)
        )
        assert wait(Spawning().start(script), timeout_s=600.0) == 0, script.output

    def test_an_example_leaves_a_report(
        self, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It ends well, with an energy report below its working directory."""
        examples.run(example, tmp_path, monkeypatch)

    def shorten_the_demo(self, patch: pytest.MonkeyPatch) -> None:
        """Leave out some of its samples."""

    def test_the_demo(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It prints the report and where to find the curves, and writes where it says."""
        self.shorten_the_demo(monkeypatch)
        options = ["--framework", self.framework, "--epochs", "1"]
        assert main(["demo", *options, "--out", "demo", "--country", "DEU"]) == 0
        said = capsys.readouterr().out
        assert "Energy in total" in said
        assert "tensorboard --logdir demo" in said
        logs = Path("demo", self.demo.folder)
        report = build(logs / "energy")
        assert report.run.status == "finished"
        assert report.run.framework == self.framework
        assert report.throughput.samples == self.demo.samples
        assert (logs / "energy" / "energy_report.html").is_file()
        assert {self.demo.curve, "energy/total_wh"} <= _tags(logs)


def _tags(folder: Path) -> set[str]:
    """Names of all curves in the event files below a folder."""
    return {
        value.tag
        for path in folder.rglob("events.out.tfevents.*")
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    }
