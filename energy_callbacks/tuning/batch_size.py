"""``tune_batch_size``: finds the batch size of a plain training loop."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, Unpack

from energy_callbacks.core.errors import NothingFits
from energy_callbacks.core.guard import ForeignCalls
from energy_callbacks.core.settings.checks import check_type
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.report.model.batch_sizes import BatchSizeCurve
from energy_callbacks.tuning import accelerator
from energy_callbacks.tuning.bench import Bench, Patience
from energy_callbacks.tuning.options import TuningOptions, search_settings
from energy_callbacks.tuning.ranks import Ranks
from energy_callbacks.tuning.result import BatchSizeResult, points
from energy_callbacks.tuning.search.costs import with_spread
from energy_callbacks.tuning.search.search import Search
from energy_callbacks.tuning.search.settings import SearchSettings
from energy_callbacks.tuning.search.trial import Trial
from energy_callbacks.tuning.snapshot.random_state import RandomState
from energy_callbacks.tuning.snapshot.torch_snapshot import TorchSnapshot


def tune_batch_size(
    step: Callable[..., Any],
    *,
    keep: Sequence[Any] = (),
    restore: Callable[[], None] | None = None,
    worst: Callable[[int], Any] | None = None,
    steps_per_call: int = 1,
    **options: Unpack[TuningOptions],
) -> BatchSizeResult:
    """Find the batch size of a training loop by running its step at several sizes.

    ::

        def step(size):
            optimizer.zero_grad()
            loss(model(inputs[:size]), targets[:size]).backward()
            optimizer.step()

        result = tune_batch_size(step, keep=[model, optimizer])

    If PyTorch trains with several processes, all processes must call this function; they
    choose the same size. ``step`` must then contain no collective operation, so it must call the
    module itself and not the wrapper for distributed training.

    Args:
        step: ``step(size)`` runs a whole training step with ``size`` samples, or
            ``steps_per_call`` such steps. If ``global_batch_size`` is set,
            ``step(size, accumulation)`` is called instead: a training step must then run
            ``accumulation`` micro-batches of ``size`` samples, and one step of the optimizer. An
            out-of-memory error means that the size does not fit; any other exception propagates.
        keep: objects that the step changes; they are restored bit for bit after each trial. They
            may be modules, optimizers, schedulers and scalers of PyTorch, and any object with
            ``state_dict`` and ``load_state_dict``. The global random generators are always
            restored.
        restore: called after each trial to restore the state that ``keep`` does not contain. For a
            training without PyTorch, ``restore`` must restore the whole state. ``None`` if ``keep``
            contains all state.
        worst: ``worst(size)`` runs a training step with the ``size`` samples that need the most
            memory, such as the longest sequences; each trial begins with this step. ``None`` for
            no such step.
        steps_per_call: number of training steps in a call of ``step``; above 1 for a compiled loop.
        **options: see ``TuningOptions``.

    Returns:
        The chosen size and all trials.

    Raises:
        NothingFits: if no size fits, or no size can be recommended.
        RuntimeError: if ``step`` has raised an error on another rank, except out of memory.
        TypeError: for an object in ``keep`` that cannot be restored, an unknown option, or an
            argument that is no function.
        ValueError: for invalid options, options that differ between ranks, a tensor in ``keep``
            that has no values yet, or ``keep`` without PyTorch.
    """
    if not callable(step):
        raise TypeError(f"step must be a function, got {step!r}; pass one that trains a step")
    for name, value in (("restore", restore), ("worst", worst)):
        check_type(name, value, Callable | None, "a function")
    ranks = Ranks()
    try:
        settings, memory_bytes = _settings(options, ranks)
        snapshot = TorchSnapshot(keep) if keep else RandomState()

        def put_back() -> None:
            snapshot.restore()
            if restore is not None:
                restore()

        meter = options.get("meter") or EnergyMeter()
        patience = options.get("patience") or Patience()
        bench = Bench(step, meter, put_back, patience, worst, settings.divides, steps_per_call)
        on_trial = options.get("on_trial") or (say if ranks.is_first else lambda _: None)
        reports = ForeignCalls("the result of a trial cannot be reported", meter.now_s)
        search = Search(settings)
        is_ours = not meter.is_running
        meter.start()
        start_s = meter.now_s()
        try:
            with meter.phase("tuning"):
                while (size := search.ask()) is not None:
                    trial = ranks.agreed(partial(bench.run, size), memory_bytes)
                    search.tell(trial)
                    reports.call(partial(on_trial, trial))
                end_s = meter.now_s()
                meter._wait_until_seen(end_s, patience.seen_s)
            cost_j = meter.energy(start_s, end_s).energy_j if end_s > start_s else None
            values = {
                **search.answer()._asdict(),
                "objective": str(settings.objective),
                "memory_bytes": settings.memory_bytes,
                "duration_s": end_s - start_s,
                "energy_j": cost_j,
            }
            trials = with_spread(search.trials)
            curve = BatchSizeCurve(**values, points=points(trials))
            meter._record("batch_sizes", **asdict(curve))
        finally:
            if is_ours:
                meter.stop()
    finally:
        accelerator.forget_compiled()
        ranks.close()
    if values["size"] is None:
        raise NothingFits(values["why"])
    return BatchSizeResult(**values, trials=tuple(trials))


def _settings(options: TuningOptions, ranks: Ranks) -> tuple[SearchSettings, int | None]:
    """Return the settings of the search, and the memory of this rank's device in bytes.

    The settings are the same on all ranks. The memory is ``None`` if unknown.

    Raises:
        ValueError: if the options differ between ranks, or an option is invalid.
        TypeError: for an unknown option.
    """
    memory = accelerator.memory()
    memory_bytes = memory.size_bytes if memory else None
    known = [size for size in ranks.gather(memory_bytes) if size is not None]
    settings = search_settings(options, ranks.count, min(known, default=None))
    gathered = ranks.gather(settings)
    if any(other != settings for other in gathered):
        raise ValueError(f"all ranks must give the same options, got {gathered}")
    return settings, memory_bytes


def say(trial: Trial) -> None:
    """Write the result of a trial as a line to standard error."""
    if trial.samples_per_s is None:
        text = f"does not fit: {trial.reason}"
    else:
        text = f"{trial.samples_per_s:.4g} samples/s"
        if trial.j_per_sample is not None:
            text += f", {trial.j_per_sample:.3g} J/sample"
    sys.stderr.write(f"batch size {trial.size}: {text}\n")
