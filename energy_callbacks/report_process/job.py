"""What is made after a training: the files of its report, and its pages in TensorBoard."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.accounting.journal import journal
from energy_callbacks.core.errors import JournalError
from energy_callbacks.sensing.clock import Latch

if TYPE_CHECKING:
    from energy_callbacks.report_process.pages import Pages

OnReport = Callable[[Mapping[str, float], Path], None]
"""Called with the last figures by tag, and the folder with the files of the report."""


class ReportJob:
    """The report of one training that is to be made.

    Args:
        run_folder: folder of the journals and of the report.
        pages: pages of TensorBoard, for each training that the report covers.
        on_report: functions that are called when the report is complete, in the process of the
            training and not on the training thread; they must not raise exceptions.
        run_id: id of the run; ``None`` for the newest run in the folder.

    Attributes:
        on_report: what is called when the report is complete.
        done: set when the job was made, has failed or was skipped.
    """

    def __init__(
        self,
        run_folder: Path,
        pages: "Sequence[Pages]" = (),
        on_report: Sequence[OnReport] = (),
        run_id: str | None = None,
    ) -> None:
        self.run_folder = run_folder
        self.run_id = run_id
        self.pages = pages
        self.on_report = tuple(on_report)
        self.done = Latch()

    def take_over(self, skipped: "ReportJob") -> None:
        """Also tell those who wait for the report of a skipped job of the same run."""
        self.on_report = (*skipped.on_report, *self.on_report)

    def publish(self, figures: Mapping[str, float]) -> None:
        """Call ``on_report`` with the figures that ``make`` has returned."""
        for act in self.on_report:
            act(figures, self.run_folder)

    def make(self) -> dict[str, float]:
        """Write ``energy_report.*`` into the run folder, and the pages to TensorBoard.

        Returns:
            The last figures by tag, such as ``final/total_wh``.

        Raises:
            OSError: if a file cannot be written.
            JournalError: if no journal can be read.
        """
        from energy_callbacks.report import build, save
        from energy_callbacks.report_process.pages import last_figures

        report = build(self._paths())
        save(report, self.run_folder)
        for pages in self.pages:
            pages.write(report)
        return last_figures(report)

    def _paths(self) -> Path | list[Path]:
        """Return the run folder, or its journals without those of runs that began later.

        Trainings may share a folder, and the next one may have begun before this report is made.
        """
        found = {path: _header(path) for path in journal.find(self.run_folder)}
        own = [header for header in found.values() if header.get("run_id") == self.run_id]
        if not own:
            return self.run_folder
        hosts, newest_s = {one["host"] for one in own}, max(one["unix_s"] for one in own)
        return [
            path
            for path, header in found.items()
            if header.get("run_id") == self.run_id
            or header.get("host") not in hosts
            or header["unix_s"] < newest_s
        ]

    def as_json(self) -> str:
        """Return the job as JSON, for the report process."""
        pages = [dataclasses.asdict(one) for one in self.pages]
        run = {"run_folder": str(self.run_folder), "run_id": self.run_id}
        return json.dumps({**run, "pages": pages})

    @classmethod
    def from_json(cls, text: str) -> "ReportJob":
        """Return the job that ``as_json`` has encoded."""
        from energy_callbacks.report_process.pages import Pages

        values = json.loads(text)
        pages = [Pages(**one) for one in values["pages"]]
        return cls(Path(values["run_folder"]), pages, run_id=values["run_id"])


def _header(path: Path) -> journal.Record:
    """Return the header of a journal; empty if it is damaged, which the report mentions."""
    try:
        return journal.header(path)
    except JournalError:
        return {}
