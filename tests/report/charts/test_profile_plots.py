"""The charts of profiles: labels of neighbouring axes do not overlap."""

import itertools
from typing import Any

import pytest

from energy_callbacks.report.charts.profile_plots import kernels_figure
from energy_callbacks.report.model.profile_kernels import KernelProfile, KernelRow

NAMES = ("elementwise and reduction", "matrix product", "idle")
# Minimum space between two labels of a panel, about half a digit, and between those of two panels,
# in points.
_WITHIN_PT, _BETWEEN_PT = 4.0, 14.0


def profile(step_s: float, step_j: float) -> KernelProfile:
    """A profile of three kinds of work, which take a half, a third and a sixth of a step."""
    rows = tuple(
        KernelRow(
            name=name, class_name="idle" if name == "idle" else name, calls=1.0,
            time_s=step_s * share, share=share, energy_j=step_j * share,
        )
        for name, share in zip(NAMES, (1 / 2, 1 / 3, 1 / 6), strict=True)
    )  # fmt: skip
    return KernelProfile(
        framework="torch", has_device=True, windows=1, measured_steps=2, steps=10, step_s=step_s,
        overhead=None, scope="gpu", j_per_step=step_j, j_per_step_error=0.1 * step_j,
        kernels_per_step=3.0, busy_share=None, classes=rows, kernels=rows, parts=None,
        idle_s=None, cudnn_share=None, copy_s=None, copy_overlap=None, activity=None,
        roofline=None, bound="unknown", sentence="", evidence=(), traces=(), folded=None,
        speedscope=None, notes=(),
    )  # fmt: skip


@pytest.mark.parametrize("step_s", [5e-6, 3.1e-5, 5.04e-2, 4.9])
@pytest.mark.parametrize("width_in", [9.4, 6.2, 4.3])
def test_tick_labels_do_not_overlap(step_s: float, width_in: float) -> None:
    """Within a panel and between panels, whatever the length of the labels."""
    figure = kernels_figure(profile(step_s, 28.1 * step_s), width_in=width_in)
    assert figure is not None
    figure.draw_without_rendering()
    panels = [_labels(axes) for axes in figure.axes]
    for boxes in panels:
        assert len(boxes) >= 3
        for left, right in itertools.pairwise(boxes):
            assert (right.x0 - left.x1) * 72.0 / figure.dpi >= _WITHIN_PT
    for one, other in itertools.pairwise(panels):
        assert (other[0].x0 - one[-1].x1) * 72.0 / figure.dpi >= _BETWEEN_PT


def _labels(axes: Any) -> list[Any]:
    low, high = axes.get_xlim()
    return [
        label.get_window_extent()
        for label in axes.get_xticklabels()
        if low <= label.get_position()[0] <= high
    ]
