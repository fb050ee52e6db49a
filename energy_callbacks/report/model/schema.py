"""The energy report as one typed, versioned record, and its JSON.

Everything a report shows is in here, so that HTML, text and JSON are views of the same value and
a report can be rendered again from its JSON. ``None`` means not known, ``0.0`` a measured nothing.
``SCHEMA_VERSION`` grows when a reader must change; ``docs/reference/report.schema.json`` is the
schema.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.report.model.display import as_notebook_html, as_text
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.models import (
    Attempt,
    Cost,
    DeviceUse,
    Efficiencies,
    Emissions,
    Forecast,
    Imbalance,
    MeasuringCost,
    Memory,
    Phase,
    Progress,
    RankUse,
    ReportWarning,
    Run,
    Scopes,
    Series,
    Span,
    Throughput,
    UnavailableSensor,
)
from energy_callbacks.report.model.profile import Profile
from energy_callbacks.report.model.recommendation import Advice

if TYPE_CHECKING:
    from pydantic import TypeAdapter

FORMAT = "energy_callbacks.report"
SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyReport:
    """The report of a run: what was used, where, the uncertainty, and what to know first.

    Attributes:
        tool_version: of this package when it measured.
        forecast: the newest one; ``None`` if the run was too short or its length not known.
        measured_fraction: share of the total energy that sensors measured.
        timeline: phases in time, for the charts.
        ranks: what each rank did, if an attempt has several; empty otherwise.
        imbalances: ranks that stand out from the others.
        batch_sizes: searches for one, in the order in which they were made.
        advice: what to change, what saves most first.
        metrics: the user's own, such as the loss.
        progress: steps and energy over time; ``None`` if no steps were reported.
        profile: what profilers have found; ``None`` if there were none.
        method_notes: each assumption behind the numbers, one sentence each.
    """

    format: Literal["energy_callbacks.report"] = "energy_callbacks.report"
    schema_version: int = SCHEMA_VERSION
    tool_version: str
    warnings: tuple[ReportWarning, ...]
    run: Run
    energy: Scopes
    measured_fraction: float | None
    emissions: Emissions | None
    cost: Cost | None
    forecast: Forecast | None = None
    efficiency: Efficiencies
    throughput: Throughput
    memory: Memory
    phases: tuple[Phase, ...]
    devices: tuple[DeviceUse, ...]
    attempts: tuple[Attempt, ...]
    unavailable: tuple[UnavailableSensor, ...]
    measuring: MeasuringCost
    environment: dict[str, str]
    method_notes: tuple[str, ...]
    timeline: tuple[Span, ...]
    series: tuple[Series, ...]
    ranks: tuple[RankUse, ...] = ()
    imbalances: tuple[Imbalance, ...] = ()
    batch_sizes: tuple[BatchSizeCurve, ...] = ()
    advice: tuple[Advice, ...] = ()
    metrics: tuple[Metric, ...] = ()
    progress: Progress | None = None
    profile: Profile | None = None

    def __str__(self) -> str:
        """The report as a terminal shows it."""
        return as_text(self)

    def _repr_html_(self) -> str:
        """The report as a notebook shows it: the whole page in a frame of its own."""
        return as_notebook_html(self)


@cache
def _adapter() -> "TypeAdapter[EnergyReport]":
    from pydantic import TypeAdapter

    return TypeAdapter(EnergyReport)


def to_json(report: EnergyReport) -> str:
    """The report as JSON in the order of the schema: one line for each part, so that it diffs."""
    parts = _adapter().dump_python(report, mode="json")
    lines = [
        f'"{name}": {json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ": "))}'
        for name, part in parts.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str) -> EnergyReport:
    """The report that ``to_json`` wrote.

    Raises:
        JournalError: if the text is no report, is damaged, or is of a newer schema.
    """
    _check_format(_parsed(text))
    from pydantic import ValidationError

    try:
        return _adapter().validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise JournalError(
            f"this energy report is damaged: {place}: {first['msg']}, got {first['input']!r:.80}; "
            "render it again from its run folder"
        ) from error


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise JournalError(
            f"this is not an energy report: no JSON at line {error.lineno} ({error.msg}); "
            "give an energy_report.json, an energy_report.html or a run folder"
        ) from error


def _check_format(value: Any) -> None:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        found = value.get("format") if isinstance(value, dict) else type(value).__name__
        raise JournalError(
            f"this is not an energy report: expected format {FORMAT!r}, got {found!r}; "
            "give an energy_report.json, an energy_report.html or a run folder"
        )
    version = value.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise JournalError(
            f"this energy report has schema version {version!r}, this installation reads up to "
            f"{SCHEMA_VERSION}; run: pip install --upgrade energy-callbacks"
        )


def json_schema() -> dict[str, Any]:
    """The JSON schema of a report (draft 2020-12), as it stands in the reference."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_adapter().json_schema(mode="serialization"),
    }
