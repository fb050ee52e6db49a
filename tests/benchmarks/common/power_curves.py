"""Curves of time and power over the power limit: measured ones of Zeus, and random ones.

Zeus's files have the time and the mean power of an epoch over the power limit of a V100 (7 limits)
and an A40 (9 or 5 limits). A group is a GPU with a data set, network and optimizer; a curve is one
batch size of a group.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from energy_callbacks.powercap.search.card_model import PARAMETERS, model_of
from energy_callbacks.powercap.search.posterior import Curves
from energy_callbacks.powercap.settings import KnobRange

Array = npt.NDArray[np.float64]

_FILES: Final = {"V100": "summary_power_v100.csv", "A40": "summary_power_a40.csv"}
_CARDS: Final = {"V100": np.arange(100.0, 251.0, 25.0), "A40": np.arange(100.0, 301.0, 25.0)}


@dataclass(frozen=True, kw_only=True)
class PowerCurve:
    """Time and power over the power limit.

    Attributes:
        group: name of the group.
        name: name of the curve, unique in its group.
        limits_w: (n,) power limits in ascending order, W.
        step_s: (n,) duration at each limit, s.
        power_w: (n,) mean power at each limit, W.
    """

    group: str
    name: str
    limits_w: Array
    step_s: Array
    power_w: Array

    @property
    def settings(self) -> KnobRange:
        """The range of the limit."""
        lowest, highest = float(self.limits_w[0]), float(self.limits_w[-1])
        return KnobRange(
            knob="limit", lowest=lowest, highest=highest, present=highest, default=highest
        )

    def monotone(self) -> "PowerCurve":
        """Return the nearest curve whose time falls and whose power rises with the limit."""
        from scipy.optimize import isotonic_regression

        return PowerCurve(
            group=self.group,
            name=self.name,
            limits_w=self.limits_w,
            step_s=isotonic_regression(self.step_s, increasing=False).x,
            power_w=isotonic_regression(self.power_w).x,
        )

    def at(self, limits_w: Array) -> Curves:
        """Return time and energy at other limits, interpolated by ``PchipInterpolator``."""
        from scipy.interpolate import PchipInterpolator

        step_s = PchipInterpolator(self.limits_w, self.step_s)(limits_w)
        power_w = PchipInterpolator(self.limits_w, self.power_w)(limits_w)
        return Curves(limits_w, len(limits_w) - 1, step_s[None], (step_s * power_w)[None])


def of_zeus(folder: Path) -> Iterator[PowerCurve]:
    """Yield the curves of Zeus's files in a folder."""
    for card, name in _FILES.items():
        points = defaultdict(list)
        with (folder / name).open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                group = f"{card} {row['dataset']} {row['network']} {row['optimizer']}"
                values = row["power_limit"], row["time_per_epoch"], row["average_power"]
                points[group, row["batch_size"]].append([float(value) for value in values])
        for (group, size), rows in points.items():
            limits_w, step_s, power_w = np.array(sorted(rows)).T
            yield PowerCurve(
                group=group, name=size, limits_w=limits_w, step_s=step_s, power_w=power_w
            )


def random_curves(count: int, seed: int) -> Iterator[PowerCurve]:
    """Yield random curves of the card model for each card; parameters are from its prior."""
    dice = np.random.default_rng([seed, 25])
    for card, limits_w in _CARDS.items():
        for i in range(count):
            highest = float(limits_w[-1])
            settings = KnobRange(
                knob="limit", lowest=100.0, highest=highest, present=highest, default=highest
            )
            model = model_of(settings, cards=1, power_w=math.nan)
            log_s, log_j = model.log_curves(dice.normal(size=(1, PARAMETERS)), limits_w)
            yield PowerCurve(
                group=f"{card} random",
                name=str(i),
                limits_w=limits_w,
                step_s=np.exp(log_s[0]),
                power_w=highest * np.exp(log_j - log_s)[0],
            )
