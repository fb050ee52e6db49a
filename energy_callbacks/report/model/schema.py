"""The energy report as one typed, versioned record, and its JSON.

The record holds everything that a report shows. HTML, text and JSON present the same record, so a
report can be rendered again from its JSON. A number that is ``None`` is not known; ``0.0`` is a
known zero. ``SCHEMA_VERSION`` increases if a change of the JSON requires changes in programs that
read it. The JSON schema is in ``docs/reference/report.schema.json``.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from energy_callbacks.core.errors import JournalError
from energy_callbacks.core.extras import install_command
from energy_callbacks.report.model import amounts, curves, runs, time_series
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.report.model.display import as_notebook_html, as_text
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.power_limit import PowerChange, PowerLimitSearch
from energy_callbacks.report.model.profile_host import HostProfile
from energy_callbacks.report.model.profile_kernels import KernelProfile
from energy_callbacks.report.model.profile_lines import LineProfile
from energy_callbacks.report.model.profile_phases import StepPhases
from energy_callbacks.report.model.recommendation import Advice

if TYPE_CHECKING:
    from pandas import DataFrame
    from pydantic import TypeAdapter

FORMAT = "energy_callbacks.report"
SCHEMA_VERSION = 1
Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Results of profilers and of the search for a power limit; ``None`` if it did not run.

    Attributes:
        step_phases: energy of the phases of a training step.
        kernels: device time and energy by kernel.
        lines: energy by line of the user's source.
        host: Python calls and memory of rank 0 and of its data-loader workers.
        power_limit: search for the best power limit or clock of the GPUs.
    """

    step_phases: StepPhases | None = None
    kernels: KernelProfile | None = None
    lines: LineProfile | None = None
    host: HostProfile | None = None
    power_limit: PowerLimitSearch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReport:
    """The report of a run: energy with its origin and uncertainty, emissions, work, and warnings.

    Attributes:
        format: name of the file format.
        schema_version: ``SCHEMA_VERSION`` of the package that wrote the report.
        tool_version: version of this package in the newest attempt.
        warnings: warnings and notes; ``ReportWarning.invalidates_total`` tells them apart.
        run: name, status, duration, framework and host of the run.
        energy: energy of the run by scope.
        measured_fraction: share of the total energy that sensors measured, 0 to 1; the rest is
            estimated by models. ``None`` if no energy is known.
        emissions: emissions of the energy; ``None`` if not even their interval is known.
        cost: cost of the energy; ``None`` if energy or price is not known.
        forecast: the newest forecast; ``None`` if the run was too short for a forecast, or if
            the planned number of steps was not known.
        efficiency: energy per unit of work.
        throughput: amount of work, its speed, and waits for data.
        memory: peak and mean use of memory.
        phases: time and energy of each phase.
        devices: energy, power and other readings of each device.
        attempts: one entry for each process of each attempt.
        unavailable: sensors that could not be opened.
        measuring: processor time that the measurement itself used.
        environment: versions and settings of the newest attempt.
        method_notes: the assumptions behind the numbers, one text each.
        timeline: phases over time, for the charts.
        series: curves of the devices, for the charts.
        ranks: one entry for each rank of each attempt that has several ranks.
        imbalances: ranks that differ from the other ranks.
        batch_sizes: searches for a batch size, oldest first.
        advice: recommendations, largest saving first.
        metrics: the user's metrics, such as the loss.
        progress: steps and energy over time; ``None`` if no steps were reported or no energy is
            known.
        profile: results of the profilers; ``None`` if no profiler ran.
        power_changes: changes of power limits and clocks of the GPUs, in time order.
    """

    format: Literal["energy_callbacks.report"] = "energy_callbacks.report"
    schema_version: int = SCHEMA_VERSION
    tool_version: str
    warnings: tuple[runs.ReportWarning, ...]
    run: runs.Run
    energy: amounts.Scopes
    measured_fraction: float | None
    emissions: amounts.Emissions | None
    cost: amounts.Cost | None
    forecast: amounts.Forecast | None = None
    efficiency: amounts.Efficiencies
    throughput: amounts.Throughput
    memory: runs.Memory
    phases: tuple[runs.Phase, ...]
    devices: tuple[runs.DeviceUse, ...]
    attempts: tuple[runs.Attempt, ...]
    unavailable: tuple[runs.UnavailableSensor, ...]
    measuring: runs.MeasuringCost
    environment: dict[str, str]
    method_notes: tuple[str, ...]
    timeline: tuple[curves.Span, ...]
    series: tuple[curves.Series, ...]
    ranks: tuple[runs.RankUse, ...] = ()
    imbalances: tuple[runs.Imbalance, ...] = ()
    batch_sizes: tuple[BatchSizeCurve, ...] = ()
    advice: tuple[Advice, ...] = ()
    metrics: tuple[Metric, ...] = ()
    progress: curves.Progress | None = None
    profile: Profile | None = None
    power_changes: tuple[PowerChange, ...] = ()

    def __str__(self) -> str:
        """Return the report as text for a terminal."""
        return as_text(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as a dictionary with the content of its JSON file."""
        record: dict[str, Any] = adapter(EnergyReport).dump_python(self, mode="json")
        return record

    def to_dataframe(self) -> "DataFrame":
        """Return ``series`` as a data frame of pandas: a row for each device and time.

        The columns are the fields of ``Series``. Values that are not known are NaN.

        Raises:
            MissingExtraError: if pandas is not installed.
        """
        return time_series.as_dataframe(self.series)

    def _repr_html_(self) -> str:
        """Return the report as HTML for a notebook: the whole page in a frame."""
        return as_notebook_html(self)


@cache
def adapter(kind: type[Any]) -> "TypeAdapter[Any]":
    """Return what converts records of this type to and from JSON types."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def from_record(kind: type[Kind], record: Mapping[str, Any]) -> Kind:
    """Convert a JSON object of a journal to a record of a report.

    Args:
        kind: dataclass of the record.
        record: the JSON object; keys that ``kind`` does not have are ignored.
    """
    value: Kind = adapter(kind).validate_python(record)  # type: ignore[arg-type] # is hashable
    return value


def to_json(report: EnergyReport) -> str:
    """Return the report as JSON, with its fields in the order of the schema.

    Each top-level field is on a line of its own, so that diffs are readable.
    """
    return as_lines(report.to_dict(), separators=(",", ": "))


def as_lines(fields: Mapping[str, Any], separators: tuple[str, str] = (", ", ": ")) -> str:
    """Return a JSON object with each top-level field on a line of its own."""
    lines = [
        f'"{name}": {json.dumps(part, ensure_ascii=False, allow_nan=False, separators=separators)}'
        for name, part in fields.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> EnergyReport:
    """Return the report from the JSON that ``to_json`` wrote.

    Raises:
        JournalError: if the text is not a report, is damaged, or has a newer schema version.
    """
    _check_format(text)
    from pydantic import ValidationError

    try:
        report: EnergyReport = adapter(EnergyReport).validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise JournalError(
            f"this energy report is damaged: {place}: {first['msg']}, got {first['input']!r:.80}; "
            "render it again from its run folder"
        ) from error
    return report


def _check_format(text: str) -> None:
    try:
        value = json.loads(text)
    except (RecursionError, ValueError) as error:  # ValueError: also for numbers of 4300 digits
        problem = f"that can be read ({error})"
        if isinstance(error, json.JSONDecodeError):
            problem = f"at line {error.lineno} ({error.msg})"
        raise JournalError(
            f"this is not an energy report: no JSON {problem}; "
            "give an energy_report.json, an energy_report.html or a run folder"
        ) from error
    found = value.get("format") if isinstance(value, dict) else type(value).__name__
    if found != FORMAT:
        raise JournalError(
            f"this is not an energy report: expected format {FORMAT!r}, got {found!r}; "
            "give an energy_report.json, an energy_report.html or a run folder"
        )
    version = value.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise JournalError(
            f"this energy report has schema version {version!r}, this installation reads up to "
            f"{SCHEMA_VERSION}; run: {install_command(upgrade=True)}"
        )


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of a report (draft 2020-12) as a dictionary."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **adapter(EnergyReport).json_schema(mode="serialization"),
    }
