"""Options of the batch-size search, the same in every framework."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypedDict

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning.bench import Patience
from energy_callbacks.tuning.search.search import Objective, SearchSettings
from energy_callbacks.tuning.search.trial import Trial


class TuningOptions(TypedDict, total=False):
    """Keyword arguments of every ``tune_batch_size``; those left out have ``DEFAULTS``.

    Attributes:
        objective: ``knee``, the smallest size that is nearly as fast as the fastest;
            ``throughput``, ``energy`` or ``largest``; or a number from 0 to 1, the weight of
            joules against seconds. By default the knee, ``energy`` if the global batch is
            fixed.
        min_size: none smaller; 2 if the model has batch normalisation.
        max_size: none larger.
        multiple_of: only multiples of this number.
        powers_of_two: only these.
        start_size: where to begin, such as the size in use.
        memory_margin: share of the device's memory that is to stay free.
        max_trials: at most this many.
        max_s: no new trial after this many seconds.
        global_batch_size: samples of an optimizer step, on all ranks together. Sizes are then
            those of micro-batches, which divide it; several go through the model before each
            step.
        patience: how long a trial may take.
        on_trial: called with each trial; by default a line to standard error.
        meter: measures, in the phase ``tuning``; by default one of its own, for the time of the
            search. One that is running goes on afterwards.
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
    """The search that was asked for.

    Args:
        options: of the user.
        ranks: that train together.
        memory_bytes: of the smallest device; ``None`` if unknown.

    Raises:
        TypeError: for an option that is none.
        ValueError: for one that makes no sense.
    """
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise TypeError(
            f"tune_batch_size has no option {unknown[0]!r}; it has {', '.join(sorted(OPTIONS))}"
        )
    asked: dict[str, Any] = {k: v for k, v in options.items() if k in _OF_SEARCH}
    whole = options.get("global_batch_size")
    if whole is not None:
        if isinstance(whole, bool) or not isinstance(whole, int) or whole < 1 or whole % ranks:
            raise ValueError(
                f"global_batch_size must be a positive multiple of the {ranks} ranks, got {whole!r}"
            )
        asked = {"objective": "energy", **asked, "divides": whole // ranks}
    return SearchSettings(**asked, memory_bytes=memory_bytes)
