"""The colours of the charts, and the CSS variables that can replace them.

The main colours, such as the first two blues, are those of Okabe and Ito
(https://jfly.uni-koeln.de/color/), which people with colour blindness can distinguish.
"""

from collections.abc import Mapping, Sequence

INK, GRID, PAPER = "#1b2631", "#d3d9df", "#fdfefe"
BLUES = ("#0072b2", "#56b4e9", "#3a8fc4", "#89cdf1", "#005a8c", "#a9dbf5", "#1f81ba", "#c4e7f9")
ORANGES = ("#e69f00", "#f3c969", "#d55e00", "#f0b63a", "#b94f00", "#f7dc9b", "#e07b2e", "#fae9c4")
VIOLETS = ("#8a6fa0", "#b09cc4", "#6b4f85", "#d3c6de")
SCOPE_COLOURS: Mapping[str, Sequence[str]] = {"gpu": BLUES, "host": ORANGES, "machine": VIOLETS}
"""Colours of the devices of each scope, in turn."""
_PHASE_COLOURS: Mapping[str, str] = {
    "train": "#009e73",
    "validation": "#cc79a7",
    "test": "#c45f93",
    "predict": "#a8588a",
    "sanity_check": "#dba8c5",
    "checkpoint": "#b8a900",
    "setup": "#8fa3b3",
    "tuning": "#7a6fc2",
    "command": "#a3937b",
    "idle": "#c9d1d8",
}
_OTHER_PHASES = ("#4d8f8b", "#a06f4f", "#6f8f3d", "#8a6fa0")
# For each colour that CSS can replace, the name of the CSS variable. The colour is used
# if the variable is not defined.
CSS_VARIABLES: Mapping[str, str] = {
    INK: "--chart-ink",
    GRID: "--chart-grid",
    PAPER: "--chart-paper",
    BLUES[0]: "--chart-gpu",
    ORANGES[0]: "--chart-host",
    _PHASE_COLOURS["train"]: "--chart-train",
    _PHASE_COLOURS["idle"]: "--chart-idle",
}


def phase_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each phase: fixed for known names, in turn from a list for others."""
    unknown = [name for name in dict.fromkeys(names) if name not in _PHASE_COLOURS]
    turns = {name: _OTHER_PHASES[i % len(_OTHER_PHASES)] for i, name in enumerate(unknown)}
    return {name: _PHASE_COLOURS.get(name) or turns[name] for name in dict.fromkeys(names)}


def css_colour(colour: str) -> str:
    """Return a colour as a CSS value; style sheets can replace colours in ``CSS_VARIABLES``."""
    return f"var({CSS_VARIABLES[colour]}, {colour})" if colour in CSS_VARIABLES else colour
