"""``energy-callbacks project``: projects energy, emissions and cost of a job to many jobs.

For runs, the results are energy, emissions and cost of one job, and of all jobs of a day and of a
year; for two runs also the saving if the second run replaces the first. For comparisons, the
results are the savings per day and per year.
"""

import argparse
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.cli.common import options, run_folders
from energy_callbacks.compare import model
from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned, escaped, markdown
from energy_callbacks.projection import text
from energy_callbacks.projection.from_report import (
    changes_of,
    job_of,
    power_limit_saving,
    warnings_of,
)
from energy_callbacks.projection.projection import Fleet, project
from energy_callbacks.projection.text import Change, ProjectionColumn
from energy_callbacks.report import EnergyReport, load, view

HELP = (
    "extrapolate the energy, emissions and cost of a job to a day and a year, and compute "
    "what a change saves"
)

_ONE_EACH = (
    "One run before and one after the change: the intervals include the errors of the sensors, "
    "in the worst case that they have opposite signs, but not the variation between repeated "
    "runs. Repeat both, run energy-callbacks compare --out DIR, and project its comparison.json."
)
_OF_RATIOS = (
    "The intervals include the errors of the ratios, but not the error of the energy before the "
    "change, which a comparison does not contain."
)
# Name of a comparison's file, and maximum length of the lines of printed notes in characters.
_COMPARISON, _WIDTH = "comparison.json", 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    add = parser.add_argument
    add(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a run folder or saved report; or two of them, before and after a change; or any "
        "number of comparison.json files, which energy-callbacks compare --out writes, or folders "
        "that contain one",
    )
    add(
        "--jobs-per-day",
        type=float,
        required=True,
        metavar="N",
        help="number of jobs per day, such as 1e6",
    )
    add("--pue", type=float, help=options.PUE_HELP)
    add(
        "--scheduler-overhead",
        type=options.share,
        default=0.0,
        metavar="SHARE",
        help="energy of nodes while they start, wait and shut down, as a share of the energy of "
        "the jobs, such as 5%% (default: 0)",
    )
    options.add_location(parser)
    add(
        "--kg-per-kwh",
        type=float,
        metavar="X",
        help="carbon intensity of the electricity in kg of CO2 equivalents per kWh, instead of a "
        "country",
    )
    options.add_price(parser)
    options.add_json(parser, markdown="print the projection as Markdown")


def run(arguments: argparse.Namespace) -> int:
    """Compute the projection of runs or comparisons, and print it; return 0."""
    comparisons = [path for path in map(_comparison_at, arguments.paths) if path is not None]
    if comparisons and len(comparisons) < len(arguments.paths):
        raise ValueError("runs and comparisons cannot be projected together; give only one kind")
    if comparisons:
        _project_comparisons(arguments, comparisons)
        return 0
    if len(arguments.paths) > 2:
        raise ValueError(
            f"expected one run, or two (before and after a change), got {len(arguments.paths)}; "
            "compare repeated runs first: energy-callbacks compare --out DIR"
        )
    _project_runs(arguments, [load(run_folders.newest_at(path)) for path in arguments.paths])
    return 0


def _comparison_at(path: Path) -> Path | None:
    """Return the path of the comparison file that is at ``path`` or in the folder ``path``.

    Returns:
        ``None`` if there is no such file, or if ``path`` is a run folder (it contains
        ``attempts``), even if a comparison was saved in it.
    """
    if path.is_dir() and (path / _COMPARISON).is_file() and not (path / "attempts").is_dir():
        return path / _COMPARISON
    if not path.is_file() or path.suffix != ".json":
        return None
    with path.open(encoding="utf-8", errors="replace") as file:
        return path if model.FORMAT in file.read(200) else None


def _project_runs(arguments: argparse.Namespace, reports: Sequence[EnergyReport]) -> None:
    """Print the projection of one run, or of two runs and of the saving by the second run."""
    fleet = _fleet(arguments, reports[0])
    columns = [
        ProjectionColumn(title=one.run.name or f"run {one.run.run_id}", job=job_of(one))
        for one in reports
    ]
    notes = [warning for report in reports for warning in warnings_of(report)]
    jobs = [{"name": column.title, **_periods(column, fleet)} for column in columns]
    saved = None
    if len(columns) == 2:
        columns.append(ProjectionColumn(title="saved", job=columns[0].job.minus(columns[1].job)))
        notes.append(_ONE_EACH)
        saved = _periods(columns[2], fleet)
    found = power_limit_saving(reports[0]) if len(reports) == 1 else None
    if found is not None:
        columns.append(ProjectionColumn(title=found[0], job=found[1]))
    limit = None if found is None else {"name": found[0], **_periods(columns[-1], fleet)}
    value = {"jobs": jobs, "saved": saved, "power_limit": limit}
    _print(arguments, fleet, value, text.tables(columns, fleet), notes)


def _project_comparisons(arguments: argparse.Namespace, paths: Sequence[Path]) -> None:
    """Print what changes save per day and per year, as found by comparisons of groups of runs.

    In each comparison, every group except the first one is a change, and the first group is the
    state before the change.
    """
    fleet = _fleet(arguments, None)
    comparisons = {path: model.from_json(path.read_text("utf-8", "replace")) for path in paths}
    changes = [change for path, one in comparisons.items() for change in changes_of(one, str(path))]
    caveats = [caveat.message for one in comparisons.values() for caveat in one.caveats]
    value = {"changes": [_change(one, fleet) for one in changes]}
    tables = [(text.CONCLUSION, text.conclusion(changes, fleet))]
    _print(arguments, fleet, value, tables, [*dict.fromkeys(caveats), _OF_RATIOS])


def _fleet(arguments: argparse.Namespace, report: EnergyReport | None) -> Fleet:
    """Return the number of jobs per day and the properties of the data centre.

    Carbon intensity, power usage effectiveness (PUE), price and currency that are not in the
    arguments are those of the report, if there is one.
    """
    pue, emissions = arguments.pue, None
    price, currency = arguments.price_per_kwh, arguments.currency
    if report is not None:
        place = {"country": arguments.country, "region": arguments.region}
        shown = view(report, **place, pue=pue, price_per_kwh=price, currency=currency)
        emissions = shown.emissions
        if shown.cost is not None:
            price, currency = shown.cost.price_per_kwh, shown.cost.currency
        pue = emissions.pue if pue is None and emissions else pue
    return Fleet(
        jobs_per_day=arguments.jobs_per_day,
        intensity=_intensity(arguments, emissions),
        pue=1.0 if pue is None else pue,
        scheduler_overhead=arguments.scheduler_overhead,
        price_per_kwh=price,
        currency=currency,
    )


def _intensity(arguments: argparse.Namespace, emissions: Any) -> carbon.Intensity:
    """Return the carbon intensity that the arguments give as a number or by a country.

    Without either, return the intensity in ``emissions``, or if ``emissions`` is ``None``, that of
    the location in CodeCarbon's configuration.

    Args:
        arguments: arguments of the command.
        emissions: the ``emissions`` of a report; ``None`` if there are none.

    Raises:
        ValueError: if the arguments are not valid.
    """
    own = arguments.kg_per_kwh
    if own is not None:
        if arguments.country is not None:
            raise ValueError("--country and --kg-per-kwh exclude each other; give one of them")
        if not 0.0 <= own < 100.0:
            raise ValueError(f"--kg-per-kwh must be between 0 and 100, got {own}; example: 0.4")
        return carbon.Intensity(
            kg_per_kwh=own,
            low_kg_per_kwh=own,
            high_kg_per_kwh=own,
            place=None,
            source=f"{own:g} kg/kWh, set by the user",
        )
    if emissions is None or arguments.country is not None:
        return carbon.intensity(carbon.place(arguments.country, arguments.region))
    names = ("kg_per_kwh", "low_kg_per_kwh", "high_kg_per_kwh", "place", "source", "year")
    return carbon.Intensity(**{name: getattr(emissions, name) for name in names})


def _periods(column: ProjectionColumn, fleet: Fleet) -> dict[str, Any]:
    return {
        name.replace("a ", "per_"): asdict(text.over(column.job, fleet, days))
        for name, days in text.PERIODS
    }


def _change(change: Change, fleet: Fleet) -> dict[str, Any]:
    saving = change.before.saving(change.energy_ratio, change.time_ratio)
    day, year = (project(saving, fleet, days=days) for _, days in text.PERIODS[1:])
    return {**asdict(change), "saved": {"per_day": asdict(day), "per_year": asdict(year)}}


def _print(
    arguments: argparse.Namespace,
    fleet: Fleet,
    value: dict[str, Any],
    tables: Iterable[tuple[Sequence[str], Sequence[Sequence[str]]]],
    notes: Sequence[str],
) -> None:
    """Print a projection.

    Args:
        arguments: arguments of the command, which select the output format.
        fleet: number of jobs per day, and properties of the data centre.
        value: results for the JSON output.
        tables: header and rows of each table for the text and markdown output.
        notes: sentences about the limitations of the projection.
    """
    if arguments.json:
        options.print_json({**value, "fleet": asdict(fleet), "notes": list(notes)})
        return
    print(f"{text.terms(fleet)}\n")
    lines = markdown if arguments.markdown else aligned
    for head, rows in tables:
        print("\n".join(lines([head, *rows], "<")), end="\n\n")
    for note in [*notes, *text.notes(fleet)]:
        if arguments.markdown:
            print(f"- {escaped(note)}")
        else:
            print(textwrap.fill(f"- {formatting.one_line(note)}", _WIDTH, subsequent_indent="  "))
