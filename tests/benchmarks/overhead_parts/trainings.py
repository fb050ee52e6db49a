"""Real trainings of tiny models in Lightning, Hugging Face and Keras, whose steps are timed.

A training calls its ``Ticks`` once at each step, in the model itself, where no callback is needed.
``work`` sets the duration of a step: it is the number of layers of the model, or of matrix products
for the GPU-bound training. One processor thread computes, as in a training on a GPU, where the host
only launches kernels.

``Training.build`` returns one model with its data, and many fits can train it, each with a new
trainer. A fit begins with the same weights in the same memory as the fits before it: weights are
restored in place, and the optimizer is SGD, which has no state.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

_WIDTH, _BATCH = 64, 16
_MATRIX: Final = 4096  # as in common/loops.py: the power stays below the limit of an H200


@dataclass(slots=True)
class Ticks:
    """Counts steps, and takes notes at the beginning of chosen steps.

    Attributes:
        at: the chosen steps, counted from 0.
        note: what is called at them.
        noted: its results in this order.
        begun: number of steps that have begun.
    """

    at: frozenset[int] = frozenset()
    note: Callable[[], Any] = time.perf_counter
    noted: list[Any] = field(default_factory=list)
    begun: int = 0

    def __call__(self) -> None:
        """Begin a step."""
        if self.begun in self.at:
            self.noted.append(self.note())
        self.begun += 1


# Prepares a fit of a model: the number of steps, ticks, callbacks and a folder for logs. The
# function that it returns trains.
Prepare = Callable[[int, Ticks, list[Any], Path], Callable[[], object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A framework, and one training in it.

    Attributes:
        name: name in tables.
        step_s: intended duration of a step.
        package: package of the framework.
        door: name of the module from which users import the callback, in ``energy_callbacks``.
        build: takes the work of a step and the largest number of steps, builds a model and its
            data, and returns the function that prepares its fits.
        wait: returns when the device has done everything that was launched.
        work: amounts of work with which a step is calibrated.
    """

    name: str
    step_s: float
    package: str
    door: str
    build: Callable[[int, int], Prepare]
    wait: Callable[[], object] = lambda: None
    work: tuple[int, int] = (4, 16)

    def callback(self, folder: Path, **settings: Any) -> Any:
        """Return a callback of ours that writes into a folder, and measures all GPUs."""
        door = import_module(f"energy_callbacks.{self.door}")
        return door.GpuEnergyCallback(
            **({"report_dir": folder / "energy", "devices": "all"} | settings)
        )

    def fit(
        self, work: int, steps: int, ticks: Ticks, callbacks: list[Any], folder: Path
    ) -> Callable[[], object]:
        """Prepare a fit of a new model."""
        return self.build(work, steps)(steps, ticks, callbacks, folder)

    def seconds(self, work: int, folder: Path, steps: int = 150) -> float:
        """Return the mean duration of a step in a short training, without its first third."""
        first, last = steps // 3, steps - 1

        def note() -> float:
            self.wait()  # the host may launch steps long before the device does them
            return time.perf_counter()

        ticks = Ticks(frozenset((first, last)), note)
        self.fit(work, steps, ticks, [], folder)()
        begin_s, end_s = ticks.noted
        return float(end_s - begin_s) / (last - first)

    def calibrated(self, folder: Path) -> tuple[int, float]:
        """Return the work of a step that takes about ``step_s``, and its duration.

        If even a step with little work takes longer than ``step_s``, the work is 1.
        """
        few, more = self.work
        few_s, more_s = self.seconds(few, folder), self.seconds(more, folder)
        each_s = max((more_s - few_s) / (more - few), 1e-6)
        work = max(few + round((self.step_s - few_s) / each_s), 1)
        return work, self.seconds(work, folder)


def _layers(work: int) -> Any:
    import torch

    parts = [torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(work)]
    return torch.nn.Sequential(*(part for one in parts for part in (one, torch.nn.ReLU())))


def _single_thread() -> None:
    import torch

    torch.set_num_threads(1)


def _lightning(work: int, steps: int, *, products: bool) -> Prepare:
    """Build a model for Lightning with its default logger, on a GPU if there is one.

    With ``products``, the work is a number of products of matrices instead of layers.
    """
    import lightning.pytorch as pl
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    size = _MATRIX if products else 1

    class Tiny(pl.LightningModule):
        ticks: Ticks

        def __init__(self) -> None:
            super().__init__()
            self.layers = _layers(1 if products else work)
            self.register_buffer("matrix", torch.randn(size, size), persistent=False)
            self.sgd = torch.optim.SGD(self.parameters(), lr=1e-3)

        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.ticks()
            matrix: Any = self.matrix
            for _ in range(work if products else 0):
                torch.mm(matrix, matrix)
            loss = self.layers(batch[0]).square().mean()
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return self.sgd

        def cpu(self) -> Any:
            """Stay on the device, from which Lightning moves a model at the end of a fit."""
            return self

    _single_thread()
    model = Tiny().to("cuda" if torch.cuda.is_available() else "cpu")
    restore = _restored(model)
    data = torch.randn(steps * _BATCH, _WIDTH)

    def prepare(
        steps: int, ticks: Ticks, callbacks: list[Any], folder: Path
    ) -> Callable[[], object]:
        restore()
        model.ticks = ticks
        model.trainer = None  # that of the fit before, whose callbacks it holds
        loader = DataLoader(TensorDataset(data[: steps * _BATCH]), batch_size=_BATCH)
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="auto",
            devices=1,
            default_root_dir=folder,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=callbacks,
        )
        return lambda: trainer.fit(model, loader)

    return prepare


def _restored(model: Any) -> Callable[[], None]:
    """Return a function that restores the present weights in place, and drops gradients."""
    import torch

    kept = [weight.detach().clone() for weight in model.parameters()]

    def restore() -> None:
        with torch.no_grad():
            for weight, value in zip(model.parameters(), kept, strict=True):
                weight.copy_(value)
                weight.grad = None

    return restore


def _huggingface(work: int, steps: int) -> Prepare:
    """Build a model for the Trainer; the loss is logged every 50 steps."""
    import torch
    from transformers import Trainer, TrainingArguments
    from transformers.trainer_callback import PrinterCallback

    class Tiny(torch.nn.Module):
        ticks: Ticks

        def __init__(self) -> None:
            super().__init__()
            self.layers = _layers(work)

        def forward(self, x: Any) -> dict[str, Any]:
            self.ticks()
            return {"loss": self.layers(x).square().mean()}

    _single_thread()
    model = Tiny()
    restore = _restored(model)
    rows: Any = [{"x": row} for row in torch.randn(steps * _BATCH, _WIDTH)]

    def prepare(
        steps: int, ticks: Ticks, callbacks: list[Any], folder: Path
    ) -> Callable[[], object]:
        restore()
        model.ticks = ticks
        arguments = TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=_BATCH,
            optim="sgd",
            logging_steps=50,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, callbacks=callbacks)
        trainer.remove_callback(PrinterCallback)
        train: Callable[[], object] = trainer.train
        return train

    return prepare


def _keras(work: int, steps: int) -> Prepare:
    """Build a Keras model. A compiled step calls no Python, so another callback calls the ticks."""
    import keras
    import numpy as np

    class Tick(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self, ticks: Ticks) -> None:
            super().__init__()
            self.ticks = ticks

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            self.ticks()

    layers = [keras.layers.Dense(_WIDTH, "relu") for _ in range(work)]
    model = keras.Sequential([keras.Input((_WIDTH,)), *layers])
    model.compile(optimizer="sgd", loss="mse")
    weights = model.get_weights()
    data = np.random.default_rng(0).normal(size=(steps * _BATCH, _WIDTH)).astype(np.float32)

    def prepare(
        steps: int, ticks: Ticks, callbacks: list[Any], folder: Path
    ) -> Callable[[], object]:
        model.set_weights(weights)
        rows = data[: steps * _BATCH]
        return lambda: model.fit(
            rows, rows, batch_size=_BATCH, verbose=0, callbacks=[*callbacks, Tick(ticks)]
        )

    return prepare


def _synchronize() -> None:
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


ON_CPU: Final = (
    Training(
        name="Lightning",
        step_s=1.5e-3,
        package="lightning",
        door="lightning",
        build=partial(_lightning, products=False),
    ),
    Training(
        name="HuggingFace",
        step_s=1.5e-3,
        package="transformers",
        door="huggingface",
        build=_huggingface,
    ),
    Training(name="Keras", step_s=1.5e-3, package="keras", door="keras", build=_keras),
)
# 3.8 ms is the step of the trainings that an earlier version made 10 % longer (docs/overhead.md).
ON_GPU: Final = (
    Training(
        name="launch-bound",
        step_s=3.8e-3,
        package="lightning",
        door="lightning",
        build=partial(_lightning, products=False),
        wait=_synchronize,
        work=(10, 20),
    ),
    Training(
        name="GPU-bound",
        step_s=12e-3,
        package="lightning",
        door="lightning",
        build=partial(_lightning, products=True),
        wait=_synchronize,
        work=(2, 6),
    ),
)
TRAININGS: Final[Mapping[str, Training]] = {one.name: one for one in (*ON_CPU, *ON_GPU)}
