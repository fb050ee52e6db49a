"""Each tracker's run gets configuration, figures and files by its own methods.

The fakes have the methods of the runs of Comet 3.58, Neptune 1.14, ClearML 2.1, DVCLive 3.49 and
Aim 3.29, which were also called once in the offline mode of each library (Aim without files).
"""

from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.outputs.other_runs import TRACKERS, OtherRun

CONFIG = {"batch_size": 4}
FIGURES = {"final/total_wh": 1.5}
FILE = Path("folder/energy_report.html")


class Comet:
    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def log_parameters(self, parameters: dict, prefix: str | None = None) -> None:
        self.content |= {f"{prefix}_{name}": value for name, value in parameters.items()}

    def log_metrics(self, metrics: dict) -> None:
        self.content |= metrics

    def log_asset(self, file_data: str, file_name: str) -> None:
        self.content[file_name] = file_data


class Neptune:
    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.content[name] = value

    def __getitem__(self, name: str) -> "Neptune":
        self.place = name
        return self

    def upload(self, path: str) -> None:
        self.content[self.place] = path


class ClearML:
    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def set_parameters_as_dict(self, parameters: dict) -> None:
        self.content |= parameters

    def get_logger(self) -> "ClearML":
        return self

    def report_single_value(self, name: str, value: float) -> None:
        self.content[name] = value

    def upload_artifact(self, name: str, artifact_object: str) -> None:
        self.content[name] = artifact_object


class DvcLive:
    def __init__(self) -> None:
        self.content: dict[str, Any] = {}
        self.summary: dict[str, float] = {}

    def log_params(self, parameters: dict) -> None:
        self.content |= parameters

    def make_summary(self) -> None:
        self.content |= self.summary

    def log_artifact(self, path: str, copy: bool) -> None:
        self.content[Path(path).name] = path


class Aim:
    def __init__(self) -> None:
        self.content: dict[str, Any] = {}

    def __setitem__(self, name: str, value: Any) -> None:
        self.content[name] = value

    def log_artifact(self, path: str, name: str) -> None:
        self.content[name] = path


FAKES = {"comet_ml": Comet, "neptune": Neptune, "clearml": ClearML, "dvclive": DvcLive, "aim": Aim}
FOUND = {
    "comet_ml": {"energy_callbacks_batch_size": 4, "final/total_wh": 1.5, FILE.name: str(FILE)},
    "neptune": {"energy_callbacks": CONFIG, "final/total_wh": 1.5, "energy_report/html": str(FILE)},
    "clearml": {"energy_callbacks": CONFIG, "final/total_wh": 1.5, FILE.name: str(FILE)},
    "dvclive": {"energy_callbacks": CONFIG, "final/total_wh": 1.5, FILE.name: str(FILE)},
    "aim": {"energy_callbacks": CONFIG, "energy_callbacks_final": FIGURES, FILE.name: str(FILE)},
}


@pytest.mark.parametrize("package", TRACKERS)
def test_a_run_gets_everything(package: str) -> None:
    """Figures of the end of the training are replaced by those of the report."""
    fake = FAKES[package]()
    run = OtherRun(fake, TRACKERS[package])
    run.begin(CONFIG, "")
    run.end({"final/total_wh": 1.0})
    run.report(FIGURES, [FILE])
    assert fake.content == FOUND[package]
