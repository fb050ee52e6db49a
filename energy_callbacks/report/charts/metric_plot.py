"""The user's metrics as pictures: training and validation over the energy used, or over epochs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from energy_callbacks.report.charts.palette import INK, phase_colours
from energy_callbacks.report.charts.plots import energy_unit, short_name, style
from energy_callbacks.report.model.metrics import Metric
from energy_callbacks.report.model.schema import EnergyReport

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Over = Literal["energy", "epoch"]

# This many points can still be distinguished by their marks.
_MARKED = 40
# Values that differ more than this are drawn on a logarithmic axis.
_DECADES = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricPair:
    """One quantity as it was in training and in validation; one of both may be missing."""

    training: Metric | None
    validation: Metric | None

    @property
    def name(self) -> str:
        """What it measures."""
        return next(one.stem or one.name for one in (self.validation, self.training) if one)

    def lines(self, over: Over) -> list[tuple[str, list[float], list[float]]]:
        """Names, places (J, or epochs) and values of what can be drawn: two points make a line."""
        known = (("train", self.training), ("validation", self.validation))
        found = [(name, *_points(metric, over)) for name, metric in known if metric is not None]
        return [line for line in found if len(line[1]) > 1]


def _points(metric: Metric, over: Over) -> tuple[list[float], list[float]]:
    places = metric.epoch if over == "epoch" else metric.energy_j
    known = [(x, y) for x, y in zip(places, metric.value, strict=True) if x is not None]
    return [x for x, _ in known], [y for _, y in known]


def families(report: EnergyReport, over: Over) -> list[MetricPair]:
    """What can be drawn, the most informative first: with a validation, and a known direction."""
    by_stem: dict[str, list[Metric]] = {}
    for metric in report.metrics:
        by_stem.setdefault(metric.stem or metric.name, []).append(metric)
    found = [
        MetricPair(
            training=_fullest([one for one in several if not one.is_validation]),
            validation=_fullest([one for one in several if one.is_validation]),
        )
        for several in by_stem.values()
    ]
    drawn = [family for family in found if family.lines(over)]
    telling = [family for family in drawn if _rank(family) > (False, 0)]
    return sorted(telling or drawn[:1], key=_rank, reverse=True)


def _fullest(metrics: Sequence[Metric]) -> Metric | None:
    """Of several, that with the most points; of an epoch, if a step's is there too."""
    return max(metrics, key=lambda one: (len(one.t_s), "epoch" in one.name), default=None)


def _rank(family: MetricPair) -> tuple[bool, int]:
    one = family.validation or family.training
    way = {"lower": 2, "higher": 1, None: 0}[one.direction if one else None]
    return family.validation is not None, way


def metric_over_energy(report: EnergyReport, *, width_in: float = 9.4) -> "Canvas | None":
    """A panel for each of two quantities: how much energy brought it where.

    Args:
        report: what to draw.
        width_in: of the figure, in inches; below 6 the panels stand below each other.

    Returns:
        The figure; ``None`` if no metric or no energy is known.
    """
    shown = families(report, "energy")[:2]
    if not shown:
        return None
    from matplotlib.figure import Figure as Canvas

    is_narrow = width_in < 6.0
    with style():
        height_in = 0.5 + 2.3 * len(shown) if is_narrow else 2.9
        canvas = Canvas(figsize=(width_in, height_in), layout="constrained")
        rows, columns = (len(shown), 1) if is_narrow else (1, len(shown))
        panels = canvas.subplots(rows, columns, squeeze=False).ravel()
        for axes, family in zip(panels, shown, strict=True):
            draw(axes, family, "energy")
        # Only the lowest of a column says what runs along it.
        for axes in panels[:-1] if is_narrow else ():
            axes.set_xlabel("")
    return canvas


def draw(axes: "Axes", family: MetricPair, over: Over) -> None:
    """Training and validation, and a ring around the best validation."""
    colours = phase_colours(("train", "validation"))
    marks = {"train": "o", "validation": "s"}
    lines = family.lines(over)
    scale, unit = 1.0, "epoch"
    if over == "energy":
        scale, name = energy_unit(max(max(x) for _, x, _ in lines))
        unit = f"energy used ({name})"
    for name, places, y in lines:
        x = [place / scale for place in places]
        mark = marks[name] if len(x) <= _MARKED else None
        # They differ without colour too.
        dashes = "--" if mark is None and name == "validation" else "-"
        axes.plot(x, y, dashes, color=colours[name], marker=mark, ms=3.5, lw=1.4, label=name)
        best = _best(family, y) if name == "validation" else None
        if best is not None:
            axes.plot(
                x[best], y[best], "o", ms=9.0, mfc="none", mec=INK, mew=1.2, ls="none",
                label="best",
            )  # fmt: skip
    values = [value for _, _, y in lines for value in y]
    if min(values) > 0.0 and max(values) > _DECADES * min(values):
        axes.set_yscale("log")
        # matplotlib's own labels are TeX, which is switched off if names are the user's.
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
    axes.set_ylabel(short_name(family.name))
    axes.set_xlabel(unit)
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.1, columnspacing=1.4
    )


def _best(family: MetricPair, values: Sequence[float]) -> int | None:
    way = family.validation.direction if family.validation else None
    if way is None:
        return None
    return values.index(min(values) if way == "lower" else max(values))
