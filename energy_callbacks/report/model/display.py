"""Functions that display a record or write its files. This module imports no renderer.

Methods of records such as ``EnergyReport`` call these functions. A renderer registers an
implementation for the type of its records::

    @as_text.register
    def _(report: EnergyReport) -> str: ...

Importing the package ``energy_callbacks.report`` or ``energy_callbacks.compare`` imports the
renderers of that package. All functions raise ``TypeError`` if no implementation is registered.
"""

from functools import singledispatch
from pathlib import Path


@singledispatch
def as_text(result: object) -> str:
    """Return a record as text for a terminal."""
    raise TypeError(f"nothing renders a {type(result).__name__} as text")


@singledispatch
def as_notebook_html(result: object) -> str:
    """Return a record as HTML for a notebook."""
    raise TypeError(f"nothing renders a {type(result).__name__} as HTML")


@singledispatch
def write_files(result: object, folder: Path) -> list[Path]:
    """Write the files of a record into a folder, and return their paths."""
    raise TypeError(f"nothing writes files of a {type(result).__name__}, asked for in {folder}")
