"""``tune_batch_size``: the batch size of a plain training loop."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from energy_callbacks.errors import NothingFits
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.tuning import accelerator
from energy_callbacks.tuning.bench import Bench, Patience
from energy_callbacks.tuning.keeping import restorer
from energy_callbacks.tuning.result import BatchSizeResult
from energy_callbacks.tuning.search import Objective, Search, SearchSettings
from energy_callbacks.tuning.trial import Trial

logger = logging.getLogger("energy_callbacks")


def tune_batch_size(
    step: Callable[[int], Any],
    *,
    keep: Sequence[Any] = (),
    restore: Callable[[], None] | None = None,
    objective: Objective | float = "knee",
    min_size: int = 1,
    max_size: int = 8192,
    multiple_of: int = 1,
    powers_of_two: bool = False,
    start_size: int | None = None,
    memory_margin: float = 0.1,
    max_trials: int = 20,
    max_s: float | None = None,
    patience: Patience | None = None,
    meter: EnergyMeter | None = None,
    on_trial: Callable[[Trial], None] | None = None,
) -> BatchSizeResult:
    """Find the batch size of a training loop by running its step at some of them.

    ::

        def step(size):
            optimizer.zero_grad()
            loss(model(inputs[:size]), targets[:size]).backward()
            optimizer.step()

        result = tune_batch_size(step, keep=[model, optimizer])

    Args:
        step: one whole training step with so many samples. What it raises for want of memory is
            a finding; any other exception passes through.
        keep: what the step changes and is to be afterwards as it was, bit for bit: modules,
            optimizers, schedulers, scalers of PyTorch, and whatever has ``state_dict`` and
            ``load_state_dict``. Generators of random numbers are kept by themselves.
        restore: puts back what ``keep`` cannot, after each trial: the whole training where it is
            not PyTorch's.
        objective: ``knee``, the smallest size that is nearly as fast as the fastest;
            ``throughput``, ``energy`` or ``largest``; or a number from 0 to 1, the weight of
            joules against seconds.
        min_size: none smaller; 2 where the model has batch normalisation.
        max_size: none larger.
        multiple_of: only multiples of this number.
        powers_of_two: only these.
        start_size: where to begin, such as the size in use.
        memory_margin: share of the device's memory that is to stay free.
        max_trials: at most so many.
        max_s: no new trial after so many seconds.
        patience: how long a trial may take.
        meter: measures, in the phase ``tuning``; by default one of its own, for the time of the
            search. One that is running goes on afterwards.
        on_trial: told of each trial.

    Returns:
        The curve, and the size.

    Raises:
        NothingFits: where the smallest size does not run.
        TypeError: for something in ``keep`` that cannot be kept.
        ValueError: for settings that make no sense.
    """
    memory = accelerator.memory()
    settings = SearchSettings(
        objective=objective,
        min_size=min_size,
        max_size=max_size,
        multiple_of=multiple_of,
        powers_of_two=powers_of_two,
        start_size=start_size,
        memory_bytes=memory.size_bytes if memory else None,
        memory_margin=memory_margin,
        max_trials=max_trials,
        max_s=max_s,
    )
    put_back = restorer(keep, restore)
    meter = meter or EnergyMeter()
    is_ours = not meter.is_running
    meter.start()
    search = Search(settings)
    start_s = meter.now_s()
    try:
        with meter.phase("tuning"):
            bench = Bench(step, meter, put_back, patience)
            while (size := search.ask()) is not None:
                trial = bench.run(size)
                search.tell(trial)
                (on_trial or _say)(trial)
            end_s = meter.now_s()
            meter.wait_until_seen(end_s, bench.patience.seen_s)
            cost_j = meter.energy(start_s, end_s).energy_j if end_s > start_s else None
    finally:
        if is_ours:
            meter.stop()
    answer = search.answer()
    if answer is None:
        raise NothingFits(_nothing(search))
    return BatchSizeResult(
        size=answer.size,
        why=answer.why,
        objective=str(objective),
        trials=tuple(search.trials),
        memory_bytes=settings.memory_bytes,
        duration_s=end_s - start_s,
        energy_j=cost_j,
    )


def _say(trial: Trial) -> None:
    if trial.samples_per_s is None:
        logger.info("batch size %d does not fit: %s", trial.size, trial.reason)
    else:
        logger.info("batch size %d: %.4g samples/s", trial.size, trial.samples_per_s)


def _nothing(search: Search) -> str:
    smallest = min(search.trials, key=lambda t: t.size, default=None)
    if smallest is None or smallest.status == "ok":
        return search.reason
    return (
        f"batch size {smallest.size} does not fit: {smallest.reason}; make min_size or the model "
        "smaller, or free the device of other work"
    )
