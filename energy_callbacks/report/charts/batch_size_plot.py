"""The picture of a search for a batch size: throughput, joules and memory over the size."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from energy_callbacks.report.charts.palette import BLUES, INK, ORANGES
from energy_callbacks.report.charts.plots import style
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve, BatchSizePoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_GIB = 2**30


def batch_size_figure(curve: BatchSizeCurve, *, width_in: float = 9.4) -> "Canvas | None":
    """Three panels over the batch size; the answer is marked, and what did not fit crossed.

    Args:
        curve: what to draw.
        width_in: of the figure, in inches; below 6 the panels stand below each other.

    Returns:
        The figure; ``None`` if no size ran.
    """
    ran = sorted((point for point in curve.points if point.fits), key=lambda point: point.size)
    if not ran:
        return None
    from matplotlib.figure import Figure as Canvas

    is_narrow = width_in < 6.0
    with style():
        size_in = (width_in, 6.6 if is_narrow else 2.9)
        canvas = Canvas(figsize=size_in, layout="constrained")
        panels = canvas.subplots(3, 1, sharex=True) if is_narrow else canvas.subplots(1, 3)
        _throughput(panels[0], ran)
        _joules(panels[1], ran)
        _memory(panels[2], ran, curve.memory_bytes)
        for axes in panels:
            _mark(axes, curve)
        for axes in panels[2:] if is_narrow else panels:
            axes.set_xlabel("batch size")
        panels[0].legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.1)
    return canvas


def _throughput(axes: "Axes", ran: Sequence[BatchSizePoint]) -> None:
    values = [point.samples_per_s or 0.0 for point in ran]
    errors = [point.samples_per_s_error or 0.0 for point in ran]
    _points(axes, ran, values, errors, BLUES[0])
    axes.set_ylabel("samples/s")


def _joules(axes: "Axes", ran: Sequence[BatchSizePoint]) -> None:
    known = [(p, p.j_per_sample) for p in ran if p.j_per_sample and p.j_per_sample.is_resolved]
    values = [ratio.value_j for _, ratio in known]
    errors = [ratio.high_j - ratio.value_j for _, ratio in known]
    _points(axes, [point for point, _ in known], values, errors, ORANGES[2])
    names = {"gpu": "GPU", "host": "host"}
    scopes = " and ".join(sorted({names[point.scope] for point, _ in known}))
    axes.set_ylabel(f"{scopes} J/sample" if known else "J/sample not known")


def _memory(axes: "Axes", ran: Sequence[BatchSizePoint], memory_bytes: int | None) -> None:
    known = [(point, point.peak_bytes) for point in ran if point.peak_bytes is not None]
    values = [peak / _GIB for _, peak in known]
    _points(axes, [point for point, _ in known], values, [0.0] * len(known), "#009e73")
    axes.set_ylabel("peak memory (GiB)")
    if memory_bytes is not None:
        axes.axhline(memory_bytes / _GIB, color=INK, ls=(0, (4, 3)), lw=0.9)


def _points(
    axes: "Axes",
    points: Sequence[BatchSizePoint],
    values: Sequence[float],
    errors: Sequence[float],
    colour: str,
) -> None:
    sizes = [point.size for point in points]
    axes.errorbar(sizes, values, yerr=errors, color=colour, marker="o", ms=3.5, lw=1.1, capsize=2.5)


def _mark(axes: "Axes", curve: BatchSizeCurve) -> None:
    """What is the same in all panels."""
    axes.set_ylim(bottom=0.0)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda size, _: f"{size:g}")
    if curve.size is not None:
        axes.axvline(curve.size, color=INK, lw=0.9, zorder=0.5, label=f"chosen: {curve.size}")
    refused = sorted({point.size for point in curve.points if not point.fits})
    if refused:
        axes.plot(
            refused,
            [0.04] * len(refused),
            transform=axes.get_xaxis_transform(),
            color=INK,
            marker="x",
            ls="none",
            ms=5.0,
            label="does not fit",
        )
