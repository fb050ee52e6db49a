"""Measures the time that hooks take from the training thread, in microseconds per step.

Measured are ``meter.step`` in a given loop, the callbacks inside a real Trainer that computes on
the CPU, and other tools if they are called at the beginning and end of each step.
"""

import contextlib
import functools
import importlib.util
import io
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tests.benchmarks.common.loops import Loop
from tests.benchmarks.common.tools import Tool

_TRAINER_STEPS: Final = 1000
_FIRST_STEPS: Final = 20  # the loop and its caches warm up
_STEP_HOOKS: Final = (
    *("on_train_batch_start", "on_train_batch_end"),  # Lightning
    *("on_step_begin", "on_step_end", "on_log"),  # Hugging Face
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCost:
    """Microseconds that the hooks of one step take."""

    median_us: float
    mean_us: float
    p99_us: float
    steps: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> "HookCost":
        """Return the costs from the seconds of each step."""
        us = 1e6 * np.asarray(seconds[_FIRST_STEPS:])
        return cls(
            median_us=float(np.median(us)),
            mean_us=float(us.mean()),
            p99_us=float(np.quantile(us, 0.99)),
            steps=len(us),
        )


def of_hook(loop: Loop, hook: Callable[[], None], steps: int) -> HookCost:
    """Measure a function that is called after each step."""
    seconds = []
    for _ in range(steps + _FIRST_STEPS):
        loop.step()
        start_s = time.perf_counter()
        hook()
        seconds.append(time.perf_counter() - start_s)
    loop.wait()
    return HookCost.of(seconds)


def of_windows(loop: Loop, tool: Tool, steps: int) -> HookCost:
    """Measure a tool whose windows are the steps.

    If it waits for the GPU at the end of a window, only the part of the wait that the loop would
    not have had anyway is a cost: compare the change of the step time.
    """
    seconds = []
    for _ in range(steps + _FIRST_STEPS):
        start_s = time.perf_counter()
        tool.begin()
        begun_s = time.perf_counter()
        loop.step()
        stepped_s = time.perf_counter()
        tool.end()
        seconds.append(begun_s - start_s + time.perf_counter() - stepped_s)
    loop.wait()
    return HookCost.of(seconds)


def of_callbacks(unknown: dict[str, str]) -> dict[str, HookCost]:
    """Measure all our hooks together, by the package of the framework.

    The reason why one has no figures is written to ``unknown``.
    """
    found = {}
    for package, make in {"lightning": _lightning, "transformers": _huggingface}.items():
        if importlib.util.find_spec(package) is None:
            unknown[package] = "not installed"
            continue
        try:
            with _silence():
                found[package] = make()
        except Exception as error:  # noqa: BLE001 - an error of a framework affects its own row
            unknown[package] = f"failed: {error!r}"
    return found


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


class _Timed:
    """Sums the time of all hooks of a callback for each step."""

    def __init__(self, callback: Any) -> None:
        self.seconds: list[float] = []
        self._sum_s = 0.0
        for name in _STEP_HOOKS:
            if hasattr(callback, name):
                setattr(callback, name, self._timed(name, getattr(callback, name)))

    def _timed(self, name: str, hook: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(hook)
        def timed(*args: Any, **kwargs: Any) -> Any:
            if name in ("on_train_batch_start", "on_step_begin"):
                self.seconds.append(self._sum_s)
                self._sum_s = 0.0
            start_s = time.perf_counter()
            try:
                return hook(*args, **kwargs)
            finally:
                self._sum_s += time.perf_counter() - start_s

        return timed


def _lightning() -> HookCost:
    import lightning.pytorch as pl
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    from energy_callbacks.lightning import GpuEnergyCallback

    class Tiny(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    with tempfile.TemporaryDirectory() as folder:
        callback = GpuEnergyCallback(report_dir=folder, devices="all")
        timed = _Timed(callback)
        trainer = pl.Trainer(
            max_steps=_TRAINER_STEPS,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[callback],
        )
        rows = TensorDataset(torch.randn(4 * _TRAINER_STEPS, 8))
        trainer.fit(Tiny(), DataLoader(rows, batch_size=4))
    return HookCost.of(timed.seconds)


def _huggingface() -> HookCost:
    import torch
    from transformers import Trainer, TrainingArguments

    from energy_callbacks.huggingface import GpuEnergyCallback

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 1)

        def forward(self, x: Any) -> dict[str, Any]:
            return {"loss": self.layer(x).square().mean()}

    rows: Any = [{"x": row} for row in torch.randn(4 * _TRAINER_STEPS, 8)]
    with tempfile.TemporaryDirectory() as folder:
        callback = GpuEnergyCallback(report_dir=folder, devices="all")
        timed = _Timed(callback)
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=_TRAINER_STEPS,
            per_device_train_batch_size=4,
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
        )
        Trainer(model=Tiny(), args=arguments, train_dataset=rows, callbacks=[callback]).train()
    return HookCost.of(timed.seconds)
