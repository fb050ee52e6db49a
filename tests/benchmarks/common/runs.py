"""Runs many simulated minutes at once, one process for each core."""

from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.benchmarks.common.cards import Windows, measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One minute of one card under one load; the fields are the arguments of ``measured``."""

    card: str
    load: str
    seed: int
    count: int
    gain: float = 1.0
    spread: float = 0.0


Results = Mapping[Run, Mapping[float, Windows]]


def measured_all(runs: Iterable[Run]) -> Results:
    """Return the windows of each run, by their length in seconds."""
    todo = list(runs)
    with ProcessPoolExecutor() as pool:
        return dict(zip(todo, pool.map(_measured, todo, chunksize=4), strict=True))


def _measured(run: Run) -> dict[float, Windows]:
    return measured(run.card, run.load, run.seed, run.count, gain=run.gain, spread=run.spread)
