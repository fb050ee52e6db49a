"""Options of the batch-size search, the same in every framework."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypedDict

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning.bench import Patience
from energy_callbacks.tuning.search.search import Objective, SearchSettings
from energy_callbacks.tuning.search.trial import Trial


class TuningOptions(TypedDict, total=False):
    """Keyword arguments of every ``tune_batch_size``; ``DEFAULTS`` has their default values.

    Attributes:
        objective: ``knee``, the smallest size that is nearly as fast as the fastest;
            ``throughput``, the fastest size; ``energy``, the size with the least energy per sample;
            ``largest``, the largest size that fits; or a number from 0 to 1, the weight of joules
            against seconds. The default is ``knee``, or ``energy`` if the global batch is fixed.
        min_size: smallest size; use at least 2 if the model has batch normalization.
        max_size: largest size.
        multiple_of: sizes are multiples of this number.
        powers_of_two: whether sizes are powers of two only.
        start_size: first size to try, such as the current one; ``None`` for the smallest.
        memory_margin: share of the device's memory that must stay free.
        max_trials: maximum number of trials.
        max_s: time limit of the search, s; no trial starts that is expected to exceed it. ``None``
            for no limit.
        global_batch_size: samples of an optimizer step on all ranks together; ``None`` if not
            fixed. If it is fixed, sizes are those of micro-batches, several of which make up an
            optimizer step.
        patience: limits on the duration of a trial; ``None`` for the default limits.
        on_trial: called with each trial; the default writes a line to standard error.
        meter: measures the search, in the phase ``tuning``. A running meter continues afterwards.
            The default is a new meter.
    """

    objective: Objective | float
    min_size: int
    max_size: int
    multiple_of: int
    powers_of_two: bool
    start_size: int | None
    memory_margin: float
    max_trials: int
    max_s: float | None
    global_batch_size: int | None
    patience: Patience | None
    on_trial: Callable[[Trial], None] | None
    meter: EnergyMeter | None


OPTIONS: Final = frozenset(TuningOptions.__annotations__)
_OF_SEARCH: Final = OPTIONS - {"global_batch_size", "patience", "on_trial", "meter"}
DEFAULTS: Final[Mapping[str, Any]] = {
    field.name: field.default for field in fields(SearchSettings) if field.name in _OF_SEARCH
}


def search_settings(options: TuningOptions, ranks: int, memory_bytes: int | None) -> SearchSettings:
    """Convert options to settings of the search.

    Args:
        options: options of the user.
        ranks: number of processes that train together.
        memory_bytes: memory of the smallest device of all ranks; ``None`` if unknown.

    Raises:
        TypeError: for an unknown option.
        ValueError: for an invalid value.
    """
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise TypeError(
            f"tune_batch_size has no option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )
    asked: dict[str, Any] = {k: v for k, v in options.items() if k in _OF_SEARCH}
    total = options.get("global_batch_size")
    if total is not None:
        if isinstance(total, bool) or not isinstance(total, int) or total < 1 or total % ranks:
            raise ValueError(
                f"global_batch_size must be a positive multiple of the {ranks} ranks, got {total!r}"
            )
        asked = {"objective": "energy", **asked, "divides": total // ranks}
    return SearchSettings(**asked, memory_bytes=memory_bytes)


def at_most(options: TuningOptions, samples: float) -> TuningOptions:
    """Return options whose ``max_size`` is at most ``samples``."""
    given: int | None = options.get("max_size")
    most = DEFAULTS["max_size"] if given is None else given
    return {**options, "max_size": int(samples) if samples < most else most}
