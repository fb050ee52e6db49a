"""The public face as users type it; mypy and pyright check it, nothing runs it."""

from pathlib import Path
from typing import assert_type

import keras

from energy_callbacks import Energy, EnergyConfig, EnergyMeter
from energy_callbacks.huggingface import GpuEnergyCallback as HuggingFaceCallback
from energy_callbacks.huggingface import batch_arguments
from energy_callbacks.huggingface import tune_batch_size as tune_huggingface
from energy_callbacks.keras import GpuEnergyCallback as KerasCallback
from energy_callbacks.keras import tune_batch_size as tune_keras
from energy_callbacks.lightning import GpuEnergyCallback
from energy_callbacks.outputs.function import FunctionOutput
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.report import EnergyReport, build, load, save, view
from energy_callbacks.testing import FakeClock, InMemoryOutput, ScriptedSource
from energy_callbacks.tuning import BatchSizeResult


def callback() -> EnergyReport:
    """Every argument of the callback, and its report."""
    ours = GpuEnergyCallback(
        report_dir=Path("runs"),
        country="USA",
        region="california",
        pue=1.2,
        price_per_kwh=0.3,
        devices=[0, "GPU-1"],
        sample_interval_s=0.5,
        step_events=True,
        log_every_n_steps=10,
        batch_size_fn=len,
        tokens_fn=len,
        run_name="baseline",
        tags={"dataset": "digits"},
    )
    return assert_type(ours.report(), EnergyReport)


def keras_callback() -> EnergyReport:
    """What Keras' callback has beside or instead of these."""
    ours = KerasCallback(
        report_dir="runs",
        country="USA",
        region="california",
        pue=1.2,
        price_per_kwh=0.3,
        devices="all",
        sample_interval_s=0.5,
        step_events=True,
        update_freq=10,
        batch_size=32,
        tokens_per_sample=128.0,
        run_name="baseline",
        tags={"dataset": "digits"},
        meter=EnergyMeter(),
    )
    return assert_type(ours.report(), EnergyReport)


def keras_tuner(model: keras.Model) -> int:
    """A search before ``fit``, with options of every search."""
    found = tune_keras(model, [1.0], [2.0], sample_weight=None, objective="energy", max_size=512)
    return assert_type(found, BatchSizeResult).size


def huggingface_callback() -> EnergyReport:
    """What Hugging Face's callback has beside or instead of these."""
    ours = HuggingFaceCallback(
        report_dir="runs",
        country="USA",
        region="california",
        pue=1.2,
        price_per_kwh=0.3,
        devices="auto",
        sample_interval_s=0.5,
        step_events=True,
        batch_size_fn=len,
        tokens_fn=len,
        run_name="baseline",
        tags={"dataset": "digits"},
        meter=EnergyMeter(),
    )
    assert_type(ours.co2_eq_emissions(training_type="fine-tuning"), dict[str, str | float])
    return assert_type(ours.report(), EnergyReport)


def huggingface_batch_size() -> dict[str, int]:
    """A function that makes a Trainer, by keywords; options are those of every framework."""

    def make_trainer(*, per_device_train_batch_size: int, gradient_accumulation_steps: int) -> str:
        return f"Trainer of {per_device_train_batch_size} x {gradient_accumulation_steps}"

    def from_keywords(**batch: int) -> str:
        return f"Trainer of {batch}"

    tune_huggingface(from_keywords)
    result = tune_huggingface(
        make_trainer, length_fn=len, global_batch_size=64, objective="energy", max_trials=8
    )
    assert_type(result, BatchSizeResult)
    return assert_type(batch_arguments(result), dict[str, int])


def plain_loop() -> float | None:
    """A plain loop and a question."""
    outputs = (TensorBoardOutput("runs"), FunctionOutput(lambda scalars, step: None))
    with EnergyMeter(config=EnergyConfig(devices="all"), outputs=outputs) as meter:
        with meter.phase("train"):
            meter.step(samples=64, tokens=None)
            assert_type(meter.log(1), dict[str, float])
        meter.data_ready()
        meter.window("validation", 0.0, 1.0)
        found = assert_type(meter.energy(0.0, 1.0, scope="gpu"), Energy)
    report = view(meter.report(), country="USA", region="ohio", pue=1.2, price_per_kwh=0.1)
    save(assert_type(report, EnergyReport), "energy", ["json", "png", "interactive"])
    return assert_type(found.energy_j, float | None)


def fakes() -> EnergyReport:
    """The fakes go where sensors and clocks go."""
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0)
    meter = EnergyMeter(sources=[source], clock=clock, outputs=[InMemoryOutput()])
    GpuEnergyCallback(meter=meter)
    return build(Path("runs")) if meter.run_folder is None else load("energy.json")
