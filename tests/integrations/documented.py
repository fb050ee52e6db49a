"""Tests of the README, documentation pages, examples and demo, shared by all frameworks.

They run in the test process, which has imported the framework; only the README's code blocks run in
a new process, which has imported nothing.
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

README = pages.ROOT / "README.md"


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The expected output of ``energy-callbacks demo``.

    Attributes:
        folder: folder of the logs, which contains the run folder ``energy``.
        samples: number of training samples in one epoch.
        curve: TensorBoard tag of the loss.
    """

    folder: str
    samples: int
    curve: str


class Documented:
    """Tests of everything that is documented for a framework; each framework has a subclass.

    Attributes:
        framework: name of its module in ``energy_callbacks``.
        examples: names of its scripts in the folder ``examples``.
        demo: expected output of its demo.
    """

    framework: ClassVar[str]
    examples: ClassVar[tuple[str, ...]]
    demo: ClassVar[Demo]

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """Run the tests for each page and each example of the framework."""
        if "page" in metafunc.fixturenames:
            found = [one for one in pages.pages_of(metafunc.cls.framework) if one != README]
            metafunc.parametrize("page", found, ids=[page.name for page in found])
        if "example" in metafunc.fixturenames:
            metafunc.parametrize("example", metafunc.cls.examples)

    @pytest.fixture(autouse=True)
    def _in_an_empty_folder(
        self, tmp_path: Path, wandb_offline: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)

    def test_blocks_of_a_page_run(self, page: Path) -> None:
        """All blocks of a page run in one namespace, as if a reader typed them."""
        pages.run(page, self.framework)

    def test_the_readme_works_from_nothing(self, tmp_path: Path) -> None:
        """The blocks of the README run in a new process, which has imported nothing."""
        arguments = (str(README), self.framework)
        script = Script(module="tests.docs.pages", folder=tmp_path, arguments=arguments)
        assert wait(Spawning().start(script), timeout_s=600.0) == 0, script.output

    def test_an_example_leaves_a_report(
        self, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The example succeeds and writes an energy report below its working directory."""
        examples.run(example, tmp_path, monkeypatch)

    def shorten_the_demo(self, patch: pytest.MonkeyPatch) -> None:
        """Reduce the number of samples of the demo; does nothing by default."""

    def test_the_demo(
        self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The demo prints the report and the TensorBoard command, and writes both to its folder."""
        self.shorten_the_demo(monkeypatch)
        options = ["--framework", self.framework, "--epochs", "1"]
        assert main(["demo", *options, "--out", "demo", "--country", "DEU"]) == 0
        said = capsys.readouterr().out
        assert "Total energy" in said
        assert "tensorboard --logdir demo" in said
        logs = Path("demo", self.demo.folder)
        report = build(logs / "energy")
        assert report.run.status == "finished"
        assert report.run.framework == self.framework
        assert report.throughput.samples == self.demo.samples
        assert (logs / "energy" / "energy_report.html").is_file()
        assert {self.demo.curve, "energy/total_wh"} <= _tags(logs)


def _tags(folder: Path) -> set[str]:
    """Return the tags of all curves in the event files below a folder."""
    return {
        value.tag
        for path in folder.rglob("events.out.tfevents.*")
        for event in EventFileLoader(str(path)).Load()
        for value in event.summary.value
    }
