"""Lets records print themselves without importing their renderers.

A record such as ``EnergyReport`` calls these functions; a renderer registers its own for the type::

    @as_text.register
    def _(report: EnergyReport) -> str: ...

So the records import no renderer. Importing ``energy_callbacks.report`` or
``energy_callbacks.compare`` imports their renderers.
"""

from functools import singledispatch
from pathlib import Path


@singledispatch
def as_text(result: object) -> str:
    """A result as a terminal shows it."""
    raise TypeError(f"nothing renders a {type(result).__name__} as text")


@singledispatch
def as_notebook_html(result: object) -> str:
    """A result as a notebook shows it."""
    raise TypeError(f"nothing renders a {type(result).__name__} as HTML")


@singledispatch
def write_files(result: object, folder: Path) -> list[Path]:
    """Write the files of a result into a folder; returns their paths."""
    raise TypeError(f"nothing writes files of a {type(result).__name__}, asked for in {folder}")
