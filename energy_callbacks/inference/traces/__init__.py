"""Traces: files of measured windows, in this package's format and in those of other profilers.

``table.py`` has the format, ``importers.py`` and ``igniter.py`` have the others.
"""

from energy_callbacks.inference.traces.reading import read as read
from energy_callbacks.inference.traces.table import append as append
from energy_callbacks.inference.traces.table import write as write
