"""Options for papers that ``report`` and ``compare`` share."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from energy_callbacks.core import atomic_files
from energy_callbacks.report.analysis.embodied import Embodied

LATEX = (
    "print a table (booktabs) and a paragraph on the methods as LaTeX, and write no other files "
    "unless --out is given"
)
# Options that print a document which contains embodied emissions.
_DOCUMENTS = ("latex", "bibtex", "annex_xi")
BIBTEX = "print the BibTeX entries that --latex cites"


def add_figures(parser: argparse.ArgumentParser) -> None:
    """Declare ``--figures`` and ``--figure-format``."""
    add = parser.add_argument
    add(
        "--figures",
        type=Path,
        metavar="DIR",
        help="also write each chart to this folder as a vector graphic for papers",
    )
    add(
        "--figure-format",
        choices=("pdf", "svg"),
        default="pdf",
        help="format of --figures (default: pdf)",
    )


def add_embodied(parser: argparse.ArgumentParser) -> None:
    """Declare ``--embodied-kg`` and ``--lifetime-years``."""
    group = parser.add_argument_group(
        "embodied emissions",
        "By default, documents for papers and disclosures state that they are not included.",
    )
    group.add_argument(
        "--embodied-kg",
        type=float,
        metavar="KG",
        help="emissions of making, transporting and disposing of all hardware that a run uses, in "
        "kgCO2e; the share of the run is its time divided by the lifetime",
    )
    group.add_argument(
        "--lifetime-years", type=float, metavar="YEARS", help="lifetime of this hardware"
    )


def embodied(arguments: argparse.Namespace) -> Embodied | None:
    """Return the value of both options; ``None`` if they are not given.

    Raises:
        ValueError: if only one of them is given, if a number is out of range, or if the printed
            document does not contain embodied emissions.
    """
    kg, lifetime_years = arguments.embodied_kg, arguments.lifetime_years
    if kg is None and lifetime_years is None:
        return None
    documents = [name for name in _DOCUMENTS if hasattr(arguments, name)]
    if not any(getattr(arguments, name) for name in documents):
        options = " or ".join(f"--{name.replace('_', '-')}" for name in documents)
        raise ValueError(
            f"--embodied-kg needs {options}; no other output contains embodied emissions"
        )
    if kg is None or lifetime_years is None:
        missing = "--embodied-kg" if kg is None else "--lifetime-years"
        raise ValueError(f"{missing} is missing; give both --embodied-kg and --lifetime-years")
    return Embodied(kg=kg, lifetime_years=lifetime_years)


def save_figures(folder: Path, files: Iterable[tuple[str, bytes]]) -> list[Path]:
    """Write files to a folder, which is created if needed; return their paths."""
    atomic_files.make_folder(folder)
    paths = []
    for name, content in files:
        atomic_files.write(folder / name, content)
        paths.append(folder / name)
    return paths
