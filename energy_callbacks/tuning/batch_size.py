"""``tune_batch_size``: the batch size of a plain training loop."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Unpack

from energy_callbacks.core.errors import NothingFits
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.tuning import accelerator
from energy_callbacks.tuning.bench import Bench
from energy_callbacks.tuning.options import TuningOptions, search_settings
from energy_callbacks.tuning.ranks import Ranks
from energy_callbacks.tuning.result import BatchSizeResult, points
from energy_callbacks.tuning.search.search import Search, SearchSettings
from energy_callbacks.tuning.search.trial import Trial
from energy_callbacks.tuning.snapshot.restorer import restorer


def tune_batch_size(
    step: Callable[..., Any],
    *,
    keep: Sequence[Any] = (),
    restore: Callable[[], None] | None = None,
    worst: Callable[[int], Any] | None = None,
    steps_per_call: int = 1,
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size of a training loop by running its step at some of them.

    ::

        def step(size):
            optimizer.zero_grad()
            loss(model(inputs[:size]), targets[:size]).backward()
            optimizer.step()

        result = tune_batch_size(step, keep=[model, optimizer])

    If PyTorch connects several processes, all of them must call it; they agree on one size.
    Then ``step`` must contain no collective: it trains the module itself, not the one that is
    wrapped for distributed training.

    Args:
        step: ``step(size)``, one whole training step with this many samples; with
            ``global_batch_size``, ``step(size, accumulation)``: ``accumulation`` times as many
            samples, and then one step of the optimizer. What it raises for want of memory is a
            finding; any other exception passes through.
        keep: what the step changes and is to be afterwards as it was, bit for bit: modules,
            optimizers, schedulers, scalers of PyTorch, and whatever has ``state_dict`` and
            ``load_state_dict``. Generators of random numbers are kept by themselves.
        restore: puts back what ``keep`` cannot, after each trial: the whole training if it is
            not PyTorch's.
        worst: a training step with this many of the samples that need the most memory, such as the
            longest sequences; each trial begins with it.
        steps_per_call: how many steps a call of ``step`` runs, if a compiled loop runs several.
        **options: see ``TuningOptions``.

    Returns:
        The curve, and the size.

    Raises:
        NothingFits: if the smallest size does not run.
        RuntimeError: if another rank has failed.
        TypeError: for something in ``keep`` that cannot be kept, or an option that is none.
        ValueError: for options that make no sense, or that ranks do not share.
    """
    ranks = Ranks()
    try:
        settings, memory_bytes = _settings(options, ranks)
        meter = options.get("meter") or EnergyMeter()
        bench = Bench(
            step,
            meter,
            restorer(keep, restore),
            options.get("patience"),
            worst=worst,
            whole=settings.divides,
            steps_per_call=steps_per_call,
        )
        on_trial = options.get("on_trial") or (say if ranks.is_first else _say_nothing)
        search = Search(settings)
        is_ours = not meter.is_running
        meter.start()
        start_s = meter.now_s()
        try:
            with meter.phase("tuning"):
                while (size := search.ask()) is not None:
                    trial = ranks.agreed(partial(bench.run, size), memory_bytes)
                    search.tell(trial)
                    on_trial(trial)
                end_s = meter.now_s()
                meter.wait_until_seen(end_s, bench.patience.seen_s)
            cost_j = meter.energy(start_s, end_s).energy_j if end_s > start_s else None
            curve = _curve(search, settings, end_s - start_s, cost_j)
            meter.record("batch_sizes", **asdict(curve))
        finally:
            if is_ours:
                meter.stop()
    finally:
        accelerator.forget_compiled()
        ranks.close()
    if curve.size is None:
        raise NothingFits(curve.why)
    return BatchSizeResult(
        size=curve.size,
        why=curve.why,
        objective=curve.objective,
        trials=search.trials,
        memory_bytes=curve.memory_bytes,
        duration_s=curve.duration_s,
        energy_j=curve.energy_j,
    )


def _curve(
    search: Search, settings: SearchSettings, duration_s: float, energy_j: float | None
) -> BatchSizeCurve:
    answer = search.answer()
    return BatchSizeCurve(
        size=answer.size if answer else None,
        why=answer.why if answer else _nothing(search),
        objective=str(settings.objective),
        points=points(search.trials),
        memory_bytes=settings.memory_bytes,
        duration_s=duration_s,
        energy_j=energy_j,
    )


def _settings(options: TuningOptions, ranks: Ranks) -> tuple[SearchSettings, int | None]:
    """The same on all ranks, and the memory of this rank's device."""
    memory = accelerator.memory()
    memory_bytes = memory.size_bytes if memory else None
    known = [size for size in ranks.gather(memory_bytes) if size is not None]
    settings = search_settings(options, ranks.count, min(known, default=None))
    told = ranks.gather(settings)
    if any(other != settings for other in told):
        raise ValueError(f"all ranks must give the same options, got {told}")
    return settings, memory_bytes


def say(trial: Trial) -> None:
    """A line about a trial, to standard error."""
    if trial.samples_per_s is None:
        told = f"does not fit: {trial.reason}"
    else:
        told = f"{trial.samples_per_s:.4g} samples/s"
        if trial.j_per_sample is not None:
            told += f", {trial.j_per_sample:.3g} J/sample"
    sys.stderr.write(f"batch size {trial.size}: {told}\n")


def _say_nothing(trial: Trial) -> None:
    """Another rank does."""


def _nothing(search: Search) -> str:
    smallest = min(search.trials, key=lambda t: t.size, default=None)
    if smallest is None or smallest.status == "ok":
        return search.reason
    return (
        f"batch size {smallest.size} does not fit: {smallest.reason}; make min_size or the model "
        "smaller, or free the device of other work"
    )
