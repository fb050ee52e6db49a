"""What is made after a training: the files of its report, and its pages in TensorBoard."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.sensing.clock import Latch

if TYPE_CHECKING:
    from energy_callbacks.report_process.pages import Pages


class ReportJob:
    """The report of one training that is to be made.

    Args:
        run_folder: folder of the journals and of the report.
        pages: pages of TensorBoard; ``None`` for none.

    Attributes:
        done: set when the job was made, has failed or was skipped.
    """

    def __init__(self, run_folder: Path, pages: "Pages | None" = None) -> None:
        self.run_folder = run_folder
        self.pages = pages
        self.done = Latch()

    def make(self) -> None:
        """Write ``energy_report.*`` into the run folder, and the pages to TensorBoard.

        Raises:
            OSError: if a file cannot be written.
            JournalError: if no journal can be read.
        """
        from energy_callbacks.report import build, save

        report = build(self.run_folder)
        save(report, self.run_folder)
        if self.pages is not None:
            self.pages.write(report)

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
