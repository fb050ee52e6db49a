"""``energy-callbacks project``: what a job costs at scale, and what a change of it saves."""

import argparse
import json
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.cli.shares import share
from energy_callbacks.compare import model
from energy_callbacks.compare.model import Comparison
from energy_callbacks.core import formatting
from energy_callbacks.core.tables import aligned, escaped, markdown
from energy_callbacks.projection import text as said
from energy_callbacks.projection.from_report import changes_of, job_of, warnings_of
from energy_callbacks.projection.projection import Fleet, project
from energy_callbacks.projection.text import Change, ProjectionColumn
from energy_callbacks.report import EnergyReport, load, view

HELP = "what a job costs a day and a year where it runs a million times, and what a change saves"

_ONE_EACH = (
    "One run a side: the intervals are those of the sensors, as if they erred in opposite ways. "
    "How much two runs of the same differ is not known from them; repeat both, then "
    "energy-callbacks compare, and give its comparison.json."
)
_OF_RATIOS = (
    "The intervals are those of the ratios; what the sensors leave open of the energy before the "
    "change is not in a comparison."
)
_COMPARISON, _WIDTH = "comparison.json", 80


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a run folder or saved report; two: before and after a change; or any number of "
        "comparison.json, of energy-callbacks compare --out, or folders with one",
    )
    parser.add_argument(
        "--jobs-per-day", type=float, required=True, metavar="N", help="how many, such as 1e6"
    )
    parser.add_argument(
        "--pue", type=float, help="of the building (default: that of the run, or 1)"
    )
    parser.add_argument(
        "--scheduler-overhead",
        type=share,
        default=0.0,
        metavar="SHARE",
        help="energy of nodes that start, wait and end, beside that of jobs, such as 5%%",
    )
    parser.add_argument("--country", help="ISO code or name (default: that of the run)")
    parser.add_argument("--region", help="state of the USA or province of Canada")
    parser.add_argument(
        "--kg-per-kwh", type=float, metavar="X", help="carbon intensity of your own contract"
    )
    parser.add_argument("--price-per-kwh", type=float, metavar="P", help="in any currency")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print it as JSON, in kWh, kg and hours")
    how.add_argument("--markdown", action="store_true", help="print it as markdown")


def run(arguments: argparse.Namespace) -> int:
    """Read, multiply, print."""
    comparisons = [path for path in map(_comparison_at, arguments.paths) if path is not None]
    if comparisons and len(comparisons) < len(arguments.paths):
        raise ValueError("give comparisons, or one or two runs, and not both")
    if comparisons:
        return _conclude(arguments, comparisons)
    if len(arguments.paths) > 2:
        raise ValueError(
            f"give one run, or two: before and after; got {len(arguments.paths)}. Of repeats make "
            "a comparison first: energy-callbacks compare --out DIR"
        )
    return _project(arguments, [load(path) for path in arguments.paths])


def _comparison_at(path: Path) -> Path | None:
    if path.is_dir() and (path / _COMPARISON).is_file() and not (path / "attempts").is_dir():
        return path / _COMPARISON
    is_one = path.is_file() and path.suffix == ".json" and model.FORMAT in _start_of(path)
    return path if is_one else None


def _start_of(path: Path) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(200)


def _project(arguments: argparse.Namespace, reports: Sequence[EnergyReport]) -> int:
    fleet = _fleet(arguments, reports[0])
    columns = [ProjectionColumn(title=_title(one), job=job_of(one)) for one in reports]
    notes = [warning for report in reports for warning in warnings_of(report)]
    if len(columns) == 2:
        saving = columns[0].job.minus(columns[1].job)
        columns.append(ProjectionColumn(title="saved", job=saving))
        notes.append(_ONE_EACH)
    if arguments.json:
        value = {
            "jobs": [{"name": column.title, **_periods(column, fleet)} for column in columns[:2]],
            "saved": _periods(columns[2], fleet) if len(columns) == 3 else None,
        }
        _print_json(value, fleet, notes)
        return 0
    _print(said.tables(columns, fleet), fleet, notes, is_markdown=arguments.markdown)
    return 0


def _conclude(arguments: argparse.Namespace, paths: Sequence[Path]) -> int:
    fleet = _fleet(arguments, None)
    comparisons = {path: _read(path) for path in paths}
    changes = [change for path, one in comparisons.items() for change in changes_of(one, str(path))]
    caveats = [caveat.message for one in comparisons.values() for caveat in one.caveats]
    notes = [*dict.fromkeys(caveats), _OF_RATIOS]
    if arguments.json:
        _print_json({"changes": [_change(one, fleet) for one in changes]}, fleet, notes)
        return 0
    table = (said.CONCLUSION, said.conclusion(changes, fleet))
    _print([table], fleet, notes, is_markdown=arguments.markdown)
    return 0


def _read(path: Path) -> Comparison:
    return model.from_json(path.read_text(encoding="utf-8", errors="replace"))


def _fleet(arguments: argparse.Namespace, report: EnergyReport | None) -> Fleet:
    """Place, PUE and price as they were given, else those of the run."""
    pue, price = arguments.pue, arguments.price_per_kwh
    found = None
    if report is not None:
        shown = view(
            report,
            country=arguments.country,
            region=arguments.region,
            pue=pue,
            price_per_kwh=price,
        )
        found = shown.emissions
        price = shown.cost.price_per_kwh if price is None and shown.cost else price
        pue = found.pue if pue is None and found else pue
    return Fleet(
        jobs_per_day=arguments.jobs_per_day,
        intensity=_intensity(arguments, found),
        pue=1.0 if pue is None else pue,
        scheduler_overhead=arguments.scheduler_overhead,
        price_per_kwh=price,
    )


def _intensity(arguments: argparse.Namespace, found: Any) -> carbon.Intensity:
    own = arguments.kg_per_kwh
    if own is not None:
        if arguments.country is not None:
            raise ValueError("give --country or --kg-per-kwh, not both")
        if not 0.0 <= own < 100.0:
            raise ValueError(f"--kg-per-kwh must lie between 0 and 100, got {own}; such as 0.4")
        return carbon.Intensity(
            kg_per_kwh=own,
            low_kg_per_kwh=own,
            high_kg_per_kwh=own,
            place=None,
            source=f"{own:g} kg/kWh, given",
        )
    if found is None or arguments.country is not None:
        return carbon.intensity(carbon.place(arguments.country, arguments.region))
    names = ("kg_per_kwh", "low_kg_per_kwh", "high_kg_per_kwh", "place", "source", "year")
    return carbon.Intensity(**{name: getattr(found, name) for name in names})


def _title(report: EnergyReport) -> str:
    return report.run.name or f"run {report.run.run_id}"


def _periods(column: ProjectionColumn, fleet: Fleet) -> dict[str, Any]:
    return {
        name.replace("a ", "per_"): asdict(said.over(column.job, fleet, days))
        for name, days in said.PERIODS
    }


def _change(change: Change, fleet: Fleet) -> dict[str, Any]:
    saving = change.before.saving(change.energy_ratio, change.time_ratio)
    return asdict(change) | {
        "saved": {
            "per_day": asdict(project(saving, fleet)),
            "per_year": asdict(project(saving, fleet, days=said.PERIODS[-1][1])),
        }
    }


def _print_json(value: dict[str, Any], fleet: Fleet, notes: Sequence[str]) -> None:
    print(json.dumps({**value, "fleet": asdict(fleet), "notes": list(notes)}, indent=2))


def _print(
    tables: "Iterator[Any] | Sequence[Any]",
    fleet: Fleet,
    notes: Sequence[str],
    *,
    is_markdown: bool,
) -> None:
    print(f"{said.terms(fleet)}\n")
    for head, rows in tables:
        print("\n".join((markdown if is_markdown else aligned)([head, *rows], "<")), end="\n\n")
    for note in [*notes, *said.notes(fleet)]:
        if is_markdown:
            print(f"- {escaped(note)}")
        else:
            print(textwrap.fill(f"- {formatting.one_line(note)}", _WIDTH, subsequent_indent="  "))
