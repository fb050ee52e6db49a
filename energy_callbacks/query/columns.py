"""Defines the SQL tables that a query can read: name, description and SQL of each column.

In all tables except ``skipped``, each row is computed from one JSON object:

* ``reports``: an object with the fields of a report that come before the field ``phases``;
* ``phases``, ``devices`` and ``metrics``: an element of the list of that name in a report.

A column of these tables is an SQL expression over *fields*. A field is a value in the object, named
by its path, such as ``run.name``. The JSON type of each field is checked, because DuckDB would
accept the text ``"12"`` as a number.

The rows of ``skipped`` are ``Skipped`` records (``query/locations.py``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from energy_callbacks.core.records import NORMAL_95

Kind = Literal["number", "whole", "text", "object", "list"]


class FieldTypes(NamedTuple):
    """SQL type of one kind of field, and allowed results of DuckDB's function ``json_type``."""

    sql: str
    json: tuple[str, ...]


KINDS: Final[Mapping[Kind, FieldTypes]] = {
    "number": FieldTypes("DOUBLE", ("DOUBLE", "UBIGINT", "BIGINT")),
    "whole": FieldTypes("BIGINT", ("UBIGINT", "BIGINT")),
    "text": FieldTypes("VARCHAR", ("VARCHAR",)),
    "object": FieldTypes("JSON", ("OBJECT",)),
    "list": FieldTypes("DOUBLE[]", ("ARRAY",)),
}
_VERSION: Final = "schema_version"
_FIELD: Final = re.compile(r"\{(number|whole|text|object|list) ([^}]+)\}")


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """One column of a table.

    Attributes:
        name: name of the column, including the unit if there is one.
        sql: SQL expression over fields, each written as ``{kind path}``; empty in ``skipped``.
        meaning: description for ``energy-callbacks query --columns``.
        type: SQL type of the column.
    """

    name: str
    sql: str
    meaning: str
    type: str = "DOUBLE"


@dataclass(frozen=True, slots=True)
class SqlTable:
    """One table. Its first column is always ``path``, the path of a report or folder.

    Attributes:
        name: name of the table.
        meaning: description for ``energy-callbacks query --columns``.
        columns: all columns except ``path``.
        part: name of the list in a report whose elements are the rows; ``None`` if the rows are
            not elements of a list.
        required: paths of the fields that must not be null; a report in which one of them is null
            is damaged.
    """

    name: str
    meaning: str
    columns: tuple[SqlColumn, ...]
    part: str | None = None
    required: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all columns, ``path`` first."""
        return ("path", *(column.name for column in self.columns))

    def only(self, names: frozenset[str]) -> "SqlTable":
        """Return the table without the columns that a query does not need.

        Args:
            names: names of the columns to keep. Columns that use a required field or the schema
                version are always kept, so that these fields are checked.
        """
        required = (*self.required, _VERSION)
        kept = tuple(
            column
            for column in self.columns
            if column.name in names
            or any(path in required for _, path in _FIELD.findall(column.sql))
        )
        return replace(self, columns=kept)

    @property
    def fields(self) -> dict[str, Kind]:
        """Kind of each field that the columns use, by the path of the field."""
        pairs = (pair for column in self.columns for pair in _FIELD.findall(column.sql))
        return {path: kind for kind, path in pairs}

    def selection(self) -> str:
        """Return the columns as SQL; ``f1``, ``f2``, ... stand for the fields, in their order."""
        names = {path: f"f{i}" for i, path in enumerate(self.fields, start=1)}
        return ", ".join(
            f"{_FIELD.sub(lambda match: names[match[2]], column.sql)} AS {column.name}"
            for column in self.columns
        )


def _text(name: str, path: str, meaning: str) -> SqlColumn:
    return SqlColumn(name, f"{{text {path}}}", meaning, "VARCHAR")


def _number(name: str, path: str, meaning: str) -> SqlColumn:
    return SqlColumn(name, f"{{number {path}}}", meaning)


def _whole(name: str, path: str, meaning: str) -> SqlColumn:
    return SqlColumn(name, f"{{whole {path}}}", meaning, "BIGINT")


def _grams(name: str, path: str, meaning: str) -> SqlColumn:
    return SqlColumn(name, f"1000 * {{number {path}}}", meaning)


def _watt_hours(prefix: str, path: str, what: str) -> tuple[SqlColumn, ...]:
    """Return the columns of an energy: value, half-width of its 95 % interval, and origin."""
    # Reports of earlier versions have no ``edge_j``; there, ``stderr_j`` includes it.
    edge_j = f"coalesce({{number {path}.edge_j}}, 0)"
    resolution_j = f"sqrt(({NORMAL_95} * {{number {path}.stderr_j}}) ** 2 + {edge_j} ** 2)"
    error_j = f"sqrt({resolution_j} ** 2 + {{number {path}.systematic_j}} ** 2)"
    return (
        SqlColumn(f"{prefix}_wh", f"{{number {path}.energy_j}} / 3600", f"energy of {what}"),
        SqlColumn(f"{prefix}_error_wh", f"({error_j}) / 3600", "half-width of its 95 % interval"),
        _text(f"{prefix}_origin", f"{path}.origin", "origin: measured, estimated or mixed"),
    )


def _scopes(path: str = "") -> tuple[SqlColumn, ...]:
    """Return the columns of the energies of GPUs, host and both.

    Args:
        path: beginning of the paths of the energies in the JSON object, such as ``energy.``.
    """
    return (
        *_watt_hours("gpu", f"{path}gpu", "the GPUs"),
        *_watt_hours("host", f"{path}host", "CPU and RAM"),
        *_watt_hours("total", f"{path}total", "GPUs, CPU and RAM, or the whole machine"),
    )


def _ratios() -> tuple[SqlColumn, ...]:
    """Return the columns of the energy per step, per sample and per token, with intervals."""
    columns = []
    for scope, title in (("gpu", "GPU"), ("total", "total")):
        for unit in ("step", "sample", "token"):
            name, path = f"{scope}_j_per_{unit}", f"efficiency.{scope}.j_per_{unit}"
            what = f"{title} energy per {unit} in training, J"
            columns += [
                _number(name, f"{path}.value_j", what),
                _number(f"{name}_low", f"{path}.low_j", "lower end of its 95 % interval"),
                _number(f"{name}_high", f"{path}.high_j", "upper end of its 95 % interval"),
            ]
    return tuple(columns)


_JOB: Final = ("system", "id", "array_id", "task", "name", "user", "account", "queue", "cluster")

REPORTS: Final = SqlTable(
    "reports",
    "one row for each report",
    (
        _text("run_id", "run.run_id", "id of the run; the same in all its attempts"),
        _text("name", "run.name", "name of the run, given by the user"),
        _text("status", "run.status", "finished, failed, interrupted, cut off or running"),
        _text("error", "run.error", "exception that ended the run"),
        SqlColumn(
            "started",
            "try(make_timestamp(CAST({number run.started_unix_s} * 1e6 AS BIGINT)))",
            "start of the first attempt, UTC",
            "TIMESTAMP",
        ),
        _number("duration_s", "run.duration_s", "measured time, without pauses between attempts"),
        _text("host", "run.host", "host of the first process of the newest attempt"),
        _text("framework", "run.framework", "lightning, keras, huggingface, plain or command"),
        _text("framework_version", "run.framework_version", "version of the framework"),
        _text("command", "run.command", "command that started the run"),
        _text("git_commit", "run.git_commit", "commit of the folder in which the run started"),
        SqlColumn("tags", "{object run.tags}", "tags of the user, as JSON: tags->>'team'", "JSON"),
        *(
            _text(f"job_{name}", f"run.job.{name}", f"{name.replace('_', ' ')} of the batch job")
            for name in _JOB
        ),
        *_scopes("energy."),
        _number("coverage", "energy.total.coverage", "share of the time with readings, 0 to 1"),
        _number(
            "measured_fraction", "measured_fraction", "share of the energy that sensors measured"
        ),
        _grams("emissions_g", "emissions.kg", "CO2 equivalents; null if location is not known"),
        _grams("emissions_low_g", "emissions.low_kg", "lower end of their interval"),
        _grams("emissions_high_g", "emissions.high_kg", "upper end of their interval"),
        _text("place", "emissions.place", "country, in some cases with a region"),
        _number("kg_per_kwh", "emissions.kg_per_kwh", "carbon intensity of the grid"),
        _number("pue", "emissions.pue", "power usage effectiveness, used for emissions and cost"),
        _number("cost", "cost.amount", "cost of the electricity, in the currency of the price"),
        _number("price_per_kwh", "cost.price_per_kwh", "price of a kWh of electricity"),
        _text("currency", "cost.currency", "ISO 4217 code of the currency of the price"),
        *_ratios(),
        _whole("steps", "throughput.steps", "optimizer steps; repeated steps are counted once"),
        _whole("samples", "throughput.samples", "samples of all ranks"),
        _whole("tokens", "throughput.tokens", "tokens of all ranks"),
        _number("train_s", "throughput.train_s", "time in the phase train"),
        _number("samples_per_s", "throughput.samples_per_s", "samples per second in training"),
        _number("tokens_per_s", "throughput.tokens_per_s", "tokens per second in training"),
        _number("data_wait_s", "throughput.data_wait_s", "time of waiting for data"),
        _number("data_wait_fraction", "throughput.data_wait_fraction", "data_wait_s / train_s"),
        _number(
            "device_peak_bytes", "memory.device_used_peak_bytes", "highest memory in use on one GPU"
        ),
        _number(
            "allocated_peak_bytes",
            "memory.peak_allocated_bytes",
            "peak memory allocated by a framework",
        ),
        _number(
            "host_peak_bytes", "memory.host_rss_peak_bytes", "highest resident memory of one rank"
        ),
        _text("tool_version", "tool_version", "version of energy_callbacks that measured"),
        _whole("schema_version", "schema_version", "schema version of the report"),
    ),
    required=("run.run_id", "run.status", "run.started_unix_s", "run.duration_s"),
)

PHASES: Final = SqlTable(
    "phases",
    "one row for each phase of each report; the phases sum to the totals",
    (
        _text("phase", "name", "name of the phase: train, validation, ..."),
        _number("duration_s", "duration_s", "time in the phase"),
        *_scopes(),
        _number("share", "share", "share of the run's energy, 0 to 1"),
    ),
    part="phases",
    required=("name",),
)

DEVICES: Final = SqlTable(
    "devices",
    "one row for each physical device of each report",
    (
        _text("key", "key", "name within the host: gpu0, cpu0, ..."),
        _text("host", "host", "host of the device"),
        _text("device", "name", "name of the device, such as NVIDIA H200"),
        _text("kind", "kind", "gpu, cpu, dram, machine, process or allocator"),
        _text("scope", "scope", "gpu, host or machine; null if the device has no energy"),
        _text("uuid", "uuid", "UUID of a card"),
        _text("counted_in", "counted_in", "device whose energy includes this one: do not add both"),
        *_watt_hours("device", "energy", "the device"),
        _number("mean_power_w", "mean_power_w", "mean power while there were readings"),
        _number("peak_power_w", "peak_power_w", "highest mean power over about a second"),
        _number("memory_peak_bytes", "memory_peak_bytes", "highest memory in use"),
        _number("utilisation_mean", "utilisation_mean", "share of time with work, 0 to 1"),
        _number("temperature_max_c", "temperature_max_c", "highest temperature"),
        _number("throttled_s", "throttled_s", "time for which the driver limited the clocks"),
    ),
    part="devices",
    required=("key",),
)

METRICS: Final = SqlTable(
    "metrics",
    "one row for each metric of each report, such as the loss",
    (
        _text("metric", "name", "name of the metric"),
        SqlColumn("last", "{list value}[-1]", "last value"),
        SqlColumn("lowest", "list_min({list value})", "lowest value"),
        SqlColumn("highest", "list_max({list value})", "highest value"),
        SqlColumn("last_step", "{list step}[-1]", "optimizer steps up to the last value"),
        SqlColumn(
            "last_wh", "{list energy_j}[-1] / 3600", "energy of GPUs and host up to the last value"
        ),
    ),
    part="metrics",
    required=("name", "value"),
)

SKIPPED: Final = SqlTable(
    "skipped",
    "one row for each run, report or folder that is missing from the other tables, or is only "
    "partly in them",
    (
        SqlColumn(
            "why", "", "not read, partly read, not listed, only page or only journals", "VARCHAR"
        ),
        SqlColumn("message", "", "the problem, and what to do", "VARCHAR"),
    ),
)

TABLES: Final = (REPORTS, PHASES, DEVICES, METRICS, SKIPPED)
