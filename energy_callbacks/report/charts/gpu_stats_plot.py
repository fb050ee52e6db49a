"""The chart of GPU statistics: power, utilisation, memory and temperature of GPUs over time."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from energy_callbacks.core import atomic_files
from energy_callbacks.report.charts.drawing import panels
from energy_callbacks.report.charts.palette import BLUES
from energy_callbacks.report.collect.gpu_stats import Sample

# Field of a sample, and label of the y axis, for each panel.
_PANELS: Final = (
    ("power", "power (W)"),
    ("utilization", "utilisation (%)"),
    ("memory_used", "memory (MiB)"),
    ("temperature", "temperature (°C)"),
)


def save(samples: Sequence[Sample], path: Path) -> None:
    """Write a PNG file with a panel for each quantity and a line for each GPU.

    Unknown values leave gaps in the lines.
    """
    with panels(9.4, 8.0, len(_PANELS), sharex=True) as (canvas, drawn):
        for index in sorted({sample["gpu_index"] for sample in samples}):
            of_gpu = [sample for sample in samples if sample["gpu_index"] == index]
            t_s = [sample["elapsed_seconds"] for sample in of_gpu]
            for axes, (field, _) in zip(drawn, _PANELS, strict=True):
                values = [float("nan") if s[field] is None else s[field] for s in of_gpu]
                colour = BLUES[index % len(BLUES)]
                axes.plot(t_s, values, lw=1.1, color=colour, label=f"gpu{index}")
        for axes, (_, label) in zip(drawn, _PANELS, strict=True):
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0.0)
        drawn[-1].set_xlabel("time measured (s)")
        drawn[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=8)
        image = io.BytesIO()
        canvas.savefig(image, dpi=120, facecolor="white")
    atomic_files.write(path, image.getvalue())
