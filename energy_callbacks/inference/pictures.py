"""Draws a plan: predictions over batch and share, and the Pareto front under the power cap."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from energy_callbacks.core import atomic_files
from energy_callbacks.inference.planner import enumeration
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.problem import GpuSetting
from energy_callbacks.inference.protocols import PredictionModel
from energy_callbacks.inference.records import Configuration, Interval, Prediction, Tenant
from energy_callbacks.report.charts.drawing import add_legend, panels, style
from energy_callbacks.report.charts.palette import BLUES, GRID, INK, ORANGES, PAPER

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

_CURVES: Final = 4  # number of shares that are drawn; the intervals of more would overlap
_COLOURS: Final = (BLUES[0], ORANGES[0], BLUES[1], ORANGES[2])


def write(path: Path, plan: Plan, model: PredictionModel) -> None:
    """Draw a plan to a file; its suffix, such as ``.svg`` or ``.png``, is the format.

    Missing folders are created.
    """
    canvas = plan_figure(plan, model)
    atomic_files.make_folder(path.parent)
    with style(salt="energy-plan"):
        metadata = {"Date": None} if path.suffix == ".svg" else None
        canvas.savefig(path, facecolor=PAPER, metadata=metadata)


def plan_figure(plan: Plan, model: PredictionModel) -> "Canvas":
    """Return the figure: a row for each model, with throughput, power, and the Pareto front.

    The curves are for as many equal tenants as fit, at the plan's clocks and limit; bands are 90 %
    intervals. The front has all configurations of equal tenants of the model that may be chosen.

    Args:
        plan: the plan.
        model: the predictor that was planned with.
    """
    models = list(dict.fromkeys(plan.problem.models))
    with panels(11.0, 0.5 + 3.0 * len(models), len(models), 3) as (canvas, drawn):
        for row, name in enumerate(models):
            throughput, power, front = drawn[3 * row : 3 * row + 3]
            _draw_curves(throughput, power, plan, model, name)
            _draw_front(front, plan, model, name)
        canvas.suptitle(_title(plan), x=0.01, ha="left", fontsize=10.0)
    return canvas


def _title(plan: Plan) -> str:
    simulated = "simulated: " if plan.prediction.source == "simulated" else ""
    cap = "" if plan.problem.cap_w is None else f" under {plan.problem.cap_w:g} W"
    return f"{simulated}plan for {', '.join(dict.fromkeys(plan.problem.models))}{cap}"


def _draw_curves(
    throughput: "Axes", power: "Axes", plan: Plan, model: PredictionModel, name: str
) -> None:
    batches = plan.problem.batches
    for share, colour in zip(_some(plan.problem.shares_pct), _COLOURS, strict=False):
        count = int(100 // share)
        setting = _setting(plan.configuration)
        found = model.predict_many(
            [
                setting.configuration([Tenant(model=name, share_pct=share, batch=batch)] * count)
                for batch in batches
            ]
        )
        label = f"{count} x {share} %"
        _draw_band(throughput, batches, [one.throughput_per_s for one in found], colour, label)
        _draw_band(power, batches, [one.power_w for one in found], colour, label)
    for axes in (throughput, power):
        axes.set_xscale("log", base=2)
        powers = [one for one in batches if one & (one - 1) == 0]  # others would overlap
        axes.set_xticks(powers, [str(one) for one in powers])
        axes.minorticks_off()
        axes.set_xlabel(f"batch of {name}")
        axes.set_ylim(bottom=0.0)
    throughput.set_ylabel("samples/s")
    power.set_ylabel("W")
    _draw_cap(plan, power.axhline)
    add_legend(throughput, 4, fontsize=7.0)


def _draw_band(
    axes: "Axes", batches: Sequence[int], values: Sequence[Interval], colour: str, label: str
) -> None:
    axes.plot(batches, [one.value for one in values], color=colour, lw=1.1, label=label)
    lows, highs = [one.low for one in values], [one.high for one in values]
    axes.fill_between(batches, lows, highs, color=colour, alpha=0.18, lw=0.0)


def _draw_front(axes: "Axes", plan: Plan, model: PredictionModel, name: str) -> None:
    choices = [
        one
        for one in enumeration.homogeneous(plan.problem, plan.problem.settings)
        if one.tenants[0].model == name
    ]
    points = [
        (one.power_w.value, one.throughput_per_s.value) for one in model.predict_many(choices)
    ]
    axes.plot(*zip(*points, strict=True), ls="", marker=".", ms=2.5, color=GRID, zorder=1)
    front = pareto(points)
    axes.plot(
        *zip(*front, strict=True), color=BLUES[0], lw=1.1, drawstyle="steps-post", label="front"
    )
    _draw_plan(axes, plan.prediction)
    _draw_cap(plan, axes.axvline)
    axes.set_xlabel("W")
    axes.set_ylabel("samples/s")
    axes.set_ylim(bottom=0.0)
    add_legend(axes, 3, fontsize=7.0)


def _draw_plan(axes: "Axes", found: Prediction) -> None:
    power_w, throughput = found.power_w, found.throughput_per_s
    axes.errorbar(
        power_w.value,
        throughput.value,
        xerr=[[power_w.value - power_w.low], [power_w.high - power_w.value]],
        yerr=[[throughput.value - throughput.low], [throughput.high - throughput.value]],
        color=ORANGES[2],
        marker="o",
        ms=4.0,
        capsize=2.5,
        label="plan",
    )


def _draw_cap(plan: Plan, line: Callable[..., Any]) -> None:
    if plan.problem.cap_w is not None:
        line(plan.problem.cap_w, color=INK, lw=0.9, ls=(0, (4, 2)), label="cap")


def pareto(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the points that no other one beats with less power and more throughput.

    >>> pareto([(100, 5), (90, 4), (95, 3), (120, 5)])
    [(90, 4), (100, 5)]
    """
    found: list[tuple[float, float]] = []
    for power_w, throughput in sorted(points, key=lambda one: (one[0], -one[1])):
        if not found or throughput > found[-1][1]:
            found.append((power_w, throughput))
    return found


def _some(shares: Sequence[int]) -> list[int]:
    """Return a few shares, from the smallest to the largest."""
    if len(shares) <= _CURVES:
        return list(shares)
    steps = range(_CURVES)
    return [sorted(shares)[round(step * (len(shares) - 1) / (_CURVES - 1))] for step in steps]


def _setting(configuration: Configuration) -> GpuSetting:
    return GpuSetting(configuration.sm_mhz, configuration.mem_mhz, configuration.power_limit_w)
