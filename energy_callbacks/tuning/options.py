"""Options of the batch-size search, which are the same for all frameworks."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Final, TypedDict

from energy_callbacks.core.settings.checks import check_type
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning.bench import Patience
from energy_callbacks.tuning.search.settings import Objective, SearchSettings
from energy_callbacks.tuning.search.trial import Trial


class TuningOptions(TypedDict, total=False):
    """Keyword arguments of the function ``tune_batch_size`` of each framework.

    ``DEFAULTS`` contains the default values, except for ``global_batch_size``, ``patience``,
    ``on_trial`` and ``meter``, whose default is ``None``.

    Attributes:
        objective: ``knee`` for the smallest size whose throughput is within 3 % of the best;
            ``throughput`` for the size with the highest throughput; ``energy`` for the size with
            the least energy per sample; ``largest`` for the largest size that fits; or a number
            from 0 to 1, the weight of energy against time. The default is ``knee``, or ``energy``
            if ``global_batch_size`` is set.
        min_size: smallest size; use at least 2 if the model has batch normalization.
        max_size: largest size.
        multiple_of: all sizes are multiples of this number. The default is 8, so that the tiles
            of kernels are full; smaller sizes are tried only if 8 does not fit or ``max_size`` is
            below 8. It is 1 for ``largest``, ``powers_of_two`` and ``global_batch_size``.
        powers_of_two: whether all sizes are powers of two.
        start_size: first size to try, such as the current batch size; ``None`` for the smallest
            size.
        memory_margin: share of the device's memory that must stay free, 0 or more and below 1.
        max_trials: maximum number of trials, with repeats; by default 12, or 20 for ``largest``.
        max_s: time limit of the search in seconds. The search ends if another trial of mean
            duration would exceed the limit. ``None`` for no limit.
        global_batch_size: number of samples per optimizer step on all ranks together; ``None`` if
            not fixed. If it is fixed, the sizes that are tried are sizes of micro-batches; one or
            more micro-batches make up an optimizer step.
        patience: limits on the duration of a trial; ``None`` for the default limits.
        on_trial: called with each trial; ``None`` writes a line to standard error on rank 0. If it
            raises an exception, a warning is logged, it is not called for a minute, and the search
            continues.
        meter: meter that measures the search, in the phase ``tuning``; a meter that is already
            running continues after the search. ``None`` for a new meter.
    """

    objective: Objective | float
    min_size: int
    max_size: int
    multiple_of: int | None
    powers_of_two: bool
    start_size: int | None
    memory_margin: float
    max_trials: int | None
    max_s: float | None
    global_batch_size: int | None
    patience: Patience | None
    on_trial: Callable[[Trial], None] | None
    meter: EnergyMeter | None


OPTIONS: Final = frozenset(TuningOptions.__annotations__)
# Options with objects: their types, and these types in words.
_OBJECTS: Final[Mapping[str, tuple[Any, str]]] = {
    "patience": (Patience, "Patience(...)"),
    "on_trial": (Callable, "a function"),
    "meter": (EnergyMeter, "EnergyMeter(...)"),
}
_OF_SEARCH: Final = OPTIONS - {"global_batch_size", *_OBJECTS}
DEFAULTS: Final[Mapping[str, Any]] = {
    field.name: field.default for field in fields(SearchSettings) if field.name in _OF_SEARCH
}


def search_settings(options: TuningOptions, ranks: int, memory_bytes: int | None) -> SearchSettings:
    """Convert options of the user to settings of the search.

    Args:
        options: the options.
        ranks: number of processes that train together.
        memory_bytes: memory of the smallest device of all ranks; ``None`` if unknown.

    Raises:
        TypeError: for an unknown option, or a value of the wrong type.
        ValueError: for an invalid value.
    """
    unknown = sorted(set(options) - OPTIONS)
    if unknown:
        raise TypeError(
            f"tune_batch_size has no option {unknown[0]!r}; its options are "
            f"{', '.join(sorted(OPTIONS))}"
        )
    for name, (kind, words) in _OBJECTS.items():
        check_type(name, options.get(name), (kind, type(None)), words)
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
    """Return the options with ``max_size`` lowered to ``samples`` if ``max_size`` is larger."""
    given: int | None = options.get("max_size")
    most = DEFAULTS["max_size"] if given is None else given
    return {**options, "max_size": int(samples) if samples < most else most}
