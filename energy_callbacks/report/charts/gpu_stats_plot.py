"""Power, load, memory and temperature of each card over time, as one picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.report.charts import plots
from energy_callbacks.report.charts.palette import BLUES
from energy_callbacks.report.collect.gpu_stats import Sample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANELS: Final = (
    ("power", "power (W)"),
    ("utilization", "utilisation (%)"),
    ("memory_used", "memory (MiB)"),
    ("temperature", "temperature (°C)"),
)


def save(samples: Sequence[Sample], path: Path) -> None:
    """Write the picture as PNG, on white."""
    with plots.style():
        figure(samples).savefig(path, dpi=120, facecolor="white")


def figure(samples: Sequence[Sample]) -> "Figure":
    """A panel for each quantity, a line for each card; gaps if nothing is known."""
    from matplotlib.figure import Figure

    with plots.style():
        canvas = Figure(figsize=(9.4, 8.0), layout="constrained")
        panels = canvas.subplots(len(_PANELS), 1, sharex=True)
        for index in sorted({sample["gpu_index"] for sample in samples}):
            mine = [sample for sample in samples if sample["gpu_index"] == index]
            t_s = [sample["elapsed_seconds"] for sample in mine]
            for panel, (field, _) in zip(panels, _PANELS, strict=True):
                values = [float("nan") if s[field] is None else s[field] for s in mine]
                colour = BLUES[index % len(BLUES)]
                panel.plot(t_s, values, lw=1.1, color=colour, label=f"gpu{index}")
        for panel, (_, label) in zip(panels, _PANELS, strict=True):
            panel.set_ylabel(label)
            panel.set_ylim(bottom=0.0)
        panels[-1].set_xlabel("time measured (s)")
        panels[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=8)
    return canvas
