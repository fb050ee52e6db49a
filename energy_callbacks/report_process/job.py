"""What is made after a training: the files of its report, and its pages in TensorBoard."""

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.sensing.clock import Latch

if TYPE_CHECKING:
    from energy_callbacks.report_process.pages import Pages

OnReport = Callable[[Mapping[str, float], Path], None]
"""Called with the last figures by tag, and the folder with the files of the report."""


class ReportJob:
    """The report of one training that is to be made.

    Args:
        run_folder: folder of the journals and of the report.
        pages: pages of TensorBoard; ``None`` for none.
        on_report: called when the report is complete, in the process of the training and not on the
            training thread; must not raise exceptions.

    Attributes:
        on_report: what is called when the report is complete.
        done: set when the job was made, has failed or was skipped.
    """

    def __init__(
        self, run_folder: Path, pages: "Pages | None" = None, on_report: OnReport | None = None
    ) -> None:
        self.run_folder = run_folder
        self.pages = pages
        self.on_report = () if on_report is None else (on_report,)
        self.done = Latch()

    def take_over(self, skipped: "ReportJob") -> None:
        """Also tell those who wait for the report of a skipped job in the same folder."""
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

        report = build(self.run_folder)
        save(report, self.run_folder)
        if self.pages is not None:
            self.pages.write(report)
        return last_figures(report)

    def as_json(self) -> str:
        """Return the job as JSON, for the report process."""
        pages = None if self.pages is None else dataclasses.asdict(self.pages)
        return json.dumps({"run_folder": str(self.run_folder), "pages": pages})

    @classmethod
    def from_json(cls, text: str) -> "ReportJob":
        """Return the job that ``as_json`` has encoded."""
        from energy_callbacks.report_process.pages import Pages

        values = json.loads(text)
        pages = values["pages"]
        return cls(Path(values["run_folder"]), None if pages is None else Pages(**pages))
