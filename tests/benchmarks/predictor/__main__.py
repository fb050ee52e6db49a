"""Measures how well throughput and power of configurations are predicted that were not measured.

``--data FOLDER`` has the measurements; without it, nothing can be measured:

- ``zeus_traces``: 13 groups of trainings over batch size and power limit on a V100 and an A40. From
  12 points that are far from each other (maximin), all others of the group are predicted.
- ``h200_mps``: two models over shares, batches and numbers of processes on an H200. From 10 random
  points of a model, all others are predicted.

Bars: on Zeus's groups, no worse than a physical form with a separate Gaussian process, whose errors
on these groups are 5.5 % (throughput) and 2.5 % (power); on the H200, the median over the splits of
the mean error of both models is at most 6 % and 8 %. Intervals of 90 % contain 85 to 97 % of the
points. Priors and units were chosen with other splits of the same data (seeds from 1000).

Beside it: boosted trees with the settings of PctoDL on the settings alone, and its predictor
(``predictor/published.py``), which needs utilisations and has no power limits: on the H200 only.

``python -m tests.benchmarks.predictor [--quick] [--json FILE] [--data FOLDER]``
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.inference.predictor import Predictor
from energy_callbacks.inference.predictor.published import PublishedPredictor, trees
from energy_callbacks.inference.records import MeasuredWindow
from energy_callbacks.inference.traces import read
from tests.benchmarks import bars
from tests.benchmarks.bars import Bar

_SEED: Final = 4_000_001
_ZEUS_POINTS, _H200_POINTS = 12, 10
_SPLITS: Final = 20
_QUICK_ZEUS_SPLITS, _ZEUS_SPLITS = 2, 5
# The most that throughput and power may err, in percent.
_ZEUS_MOST, _H200_MOST = (5.5, 2.5), (6.0, 8.0)
_LEAST_WITHIN, _MOST_WITHIN = 85.0, 97.0
_KINDS: Final = ("throughput", "power")

Windows = Sequence[MeasuredWindow]
# Errors in percent of throughput and power, and parts within the intervals in percent.
Errors = dict[str, tuple[float, ...]]


def ours(fitted: Windows, others: Windows) -> tuple[float, ...]:
    """Return the errors of our predictor, and the parts within its intervals."""
    found = Predictor.fit_only(fitted).predict_many([one.configuration for one in others])
    true = truth(others)
    table = np.array([[one.throughput_per_s, one.power_w] for one in found])
    value, low, high = np.moveaxis(table, -1, 0)
    within = 100 * np.mean((low <= true) & (true <= high), axis=0)
    return *mean_errors(value, true), *within


def boosted_trees(fitted: Windows, others: Windows) -> tuple[float, ...]:
    """Return the errors of boosted trees on batch, share, number of processes and limit."""
    known = truth(fitted)
    at, elsewhere = (np.array([*map(_settings, w)]) for w in (fitted, others))
    predicted = np.column_stack([trees(at, column)(elsewhere) for column in known.T])
    return mean_errors(predicted, truth(others))


def published(fitted: Windows, others: Windows) -> tuple[float, ...]:
    """Return the errors of the published predictor."""
    predicted = PublishedPredictor(fitted).predict([one.configuration for one in others])
    return mean_errors(np.column_stack(predicted), truth(others))


def truth(windows: Windows) -> Any:
    """Return throughput and power of windows, in columns."""
    return np.array([(one.throughput_per_s, one.power_mean_w) for one in windows], dtype=float)


def _settings(window: MeasuredWindow) -> tuple[float, ...]:
    """Return batch, share, number of processes and power limit."""
    one = window.configuration
    first = one.tenants[0]
    return first.batch, first.share_pct, len(one.tenants), one.power_limit_w or 0.0


def mean_errors(predicted: Any, true: Any) -> tuple[float, ...]:
    """Return the mean absolute errors of the columns in percent."""
    return tuple(100 * np.mean(np.abs(predicted / true - 1), axis=0))


def zeus_groups(folder: Path) -> list[list[MeasuredWindow]]:
    """Return the groups: GPU, dataset with optimizer, and model."""
    groups = defaultdict(list)
    for path in sorted(folder.glob("summary_power_*.csv")):
        for one in read(path):
            groups[one.gpu_name, one.dataset, one.configuration.tenants[0].model].append(one)
    return list(groups.values())


def h200_models(path: Path) -> list[list[MeasuredWindow]]:
    """Return the windows of each model."""
    groups = defaultdict(list)
    for one in read(path):
        groups[one.configuration.tenants[0].model].append(one)
    return list(groups.values())


def designed(windows: Windows, seed: int) -> tuple[list[MeasuredWindow], list[MeasuredWindow]]:
    """Return points that are far from each other, and the others.

    Each next point is the farthest from those chosen, over the logarithm of the batch and the
    limit; of 20 random starts, the one with the largest smallest distance is taken.
    """
    points = np.array([(np.log(batch), limit) for batch, _, _, limit in map(_settings, windows)])
    points /= np.ptp(points, axis=0)
    random = np.random.default_rng(seed)
    _, chosen = max(_spread_out(points, int(random.integers(len(points)))) for _ in range(20))
    others = [one for at, one in enumerate(windows) if at not in chosen]
    return [windows[at] for at in chosen], others


def _spread_out(points: Any, first: int) -> tuple[float, list[int]]:
    chosen, smallest = [first], np.inf
    distance = np.linalg.norm(points - points[first], axis=1)
    while len(chosen) < _ZEUS_POINTS:
        at = int(np.argmax(distance))
        smallest = min(smallest, distance[at])
        chosen.append(at)
        distance = np.minimum(distance, np.linalg.norm(points - points[at], axis=1))
    return float(smallest), chosen


def random_split(windows: Windows, seed: int) -> tuple[list[MeasuredWindow], list[MeasuredWindow]]:
    """Return random points, and the others."""
    order = np.random.default_rng(seed).permutation(len(windows))
    parts = order[:_H200_POINTS], order[_H200_POINTS:]
    fitted, others = ([windows[at] for at in part] for part in parts)
    return fitted, others


def errors(
    tool: Callable[[Windows, Windows], tuple[float, ...]],
    groups: Sequence[Windows],
    split: Callable[[Windows, int], tuple[Windows, Windows]],
    splits: int,
) -> Any:
    """Return errors and parts within intervals: (splits, groups, values)."""
    seeds = range(_SEED, _SEED + splits)
    return np.array([[tool(*split(group, seed)) for group in groups] for seed in seeds])


def judged(name: str, found: Any, most: tuple[float, float], within: Any) -> Iterator[Bar]:
    """Yield the bars of our predictor."""
    for kind, error, limit in zip(_KINDS, found, most, strict=True):
        yield Bar(name=f"{name}: error of {kind}, %", value=float(error), at_most=limit)
    for kind, part in zip(_KINDS, within, strict=True):
        yield Bar(
            name=f"{name}: {kind} within 90 % intervals, %",
            value=float(part),
            at_least=_LEAST_WITHIN,
            at_most=_MOST_WITHIN,
        )


def main() -> int:
    """Print the errors and return the exit status."""
    parser = bars.parser(__doc__)
    parser.add_argument("--data", type=Path, help="folder with zeus_traces and h200_mps")
    arguments = parser.parse_args()
    if arguments.data is None:
        return bars.skip(arguments, "no folder with measurements was given (--data FOLDER)")
    zeus = zeus_groups(arguments.data / "zeus_traces")
    h200 = h200_models(arguments.data / "h200_mps" / "mps_h200.csv")
    splits = _QUICK_ZEUS_SPLITS if arguments.quick else _ZEUS_SPLITS
    rows: Errors = {}
    found: list[Bar] = []
    print(f"{'mean absolute error in %':<34}{'throughput':>11}{'power':>8}   within 90 % intervals")
    for tool in (ours, boosted_trees):
        values = errors(tool, zeus, designed, splits).mean((0, 1))
        rows[f"Zeus, {tool.__name__}"] = tuple(values)
        if tool is ours:
            found += judged("Zeus", values[:2], _ZEUS_MOST, values[2:])
    for tool in (ours, published, boosted_trees):
        each = errors(tool, h200, random_split, _SPLITS).mean(1)
        values = np.concatenate([np.median(each[:, :2], axis=0), each[:, 2:].mean(0)])
        rows[f"H200, {tool.__name__}"] = tuple(values)
        if tool is ours:
            found += judged("H200", values[:2], _H200_MOST, values[2:])
    for name, row in rows.items():
        parts = "".join(f"{value:8.1f}" for value in row[2:])
        print(f"{name:<34}{row[0]:>11.2f}{row[1]:>8.2f}   {parts}")
    return bars.finish("predictor", arguments, found, rows=rows)


if __name__ == "__main__":
    sys.exit(main())
