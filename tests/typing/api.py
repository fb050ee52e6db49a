"""The public face as users type it; mypy and pyright check it, nothing runs it."""

from pathlib import Path
from typing import Any, assert_type

import keras

from energy_callbacks import (
    Energy,
    EnergyCallbacksError,
    EnergyConfig,
    EnergyMeter,
    JournalError,
    MissingExtraError,
    ReadingMissed,
    SourceError,
    SourceLost,
    SourceUnavailable,
)
from energy_callbacks import compare as comparing
from energy_callbacks.compare import Comparison, compare
from energy_callbacks.huggingface import GpuEnergyCallback as HuggingFaceCallback
from energy_callbacks.huggingface import batch_arguments
from energy_callbacks.huggingface import tune_batch_size as tune_huggingface
from energy_callbacks.keras import GpuEnergyCallback as KerasCallback
from energy_callbacks.keras import tune_batch_size as tune_keras
from energy_callbacks.lightning import BatchSizeTuner, GpuEnergyCallback
from energy_callbacks.outputs.function import FunctionOutput
from energy_callbacks.outputs.tensorboard import TensorBoardOutput
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.profiling import (
    HostProfiler,
    KernelProfiler,
    LineProfiler,
    QuickProfile,
    StepPhases,
    run_quick_profile,
)
from energy_callbacks.report import (
    FORMATS,
    Embodied,
    EnergyReport,
    Format,
    annex_xi,
    bibtex,
    build,
    latex,
    load,
    model_card,
    save,
    view,
)
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
        phase_events=False,
        raw_readings=False,
        max_energy_wh=10.0,
        max_emissions_g=5.0,
        power_limit=PowerLimitOptimizer(max_slowdown=0.05, knob="clock", allow_changes=True),
        record_command=False,
        log_every_n_steps=10,
        batch_size_fn=len,
        tokens_fn=len,
        run_name="baseline",
        tags={"dataset": "digits"},
        tag_prefix="ours/",
        profilers=["kernels", "lines", "phases", "host", KernelProfiler()],
    )
    assert_type(ours.wait_for_report(timeout_s=1.0), Path | None)
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
        phase_events=False,
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
        machine_power="ipmi",
        sample_interval_s=0.5,
        step_events=True,
        phase_events=False,
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
    EnergyMeter(config=EnergyConfig(devices="all", tags={"team": "vision"}))
    with EnergyMeter(country="DEU", devices="all", outputs=outputs, tag_prefix="x/") as meter:
        with meter.phase("train"):
            meter.step(samples=64, tokens=None)
            assert_type(meter.log(1), dict[str, float])
        meter.data_ready()
        meter.batch_done(t_s=meter.now_s())
        meter.mark("compiled")
        meter.count(samples=64, tokens=1e6)
        meter.enter("checkpoint")
        meter.leave("checkpoint")
        meter.plan(100)
        meter.epoch(0)
        meter.resumed(10)
        meter.record_metrics({"loss": 0.5}, step=1, epoch=0.5)
        assert_type(meter.is_over_budget(), bool)
        assert_type(meter.scalars(), dict[str, float])
        meter.window("validation", 0.0, 1.0)
        found = assert_type(meter.energy(0.0, 1.0, scope="gpu"), Energy)
    report = view(meter.report(), country="USA", region="ohio", pue=1.2, price_per_kwh=0.1)
    save(assert_type(report, EnergyReport), "energy", ["json", "png", "interactive"])
    return assert_type(found.energy_j, float | None)


def lifecycle() -> Path | None:
    """Begin, end and resume without a block."""
    meter = assert_type(EnergyMeter().start("runs"), EnergyMeter)
    state = assert_type(meter.state(), dict[str, Any])
    with meter.ending():
        assert_type(meter.totals(), dict[str, float])
    meter.start(state=state)
    assert_type(meter.is_running, bool)
    assert_type(meter.run_id, str | None)
    assert_type([device.name for device in meter.devices], list[str])
    meter.stop(error=None)
    meter.close()
    assert_type(meter.config, EnergyConfig)
    assert_type(meter.save_report(), str | None)
    return assert_type(meter.wait_for_report(), Path | None)


def decorator(meter: EnergyMeter) -> int:
    """A measured function has the type of the function."""

    @meter.measure("predict")
    def predict(batch: str, *, size: int = 1) -> int:
        return len(batch) * size

    return assert_type(predict("a", size=2), int)


def profilers() -> EnergyMeter:
    """All profilers, with some of their settings."""
    assert_type(run_quick_profile("simple_cnn", "synthetic", max_steps=1), QuickProfile)
    host = HostProfiler(steps=5)
    EnergyMeter(profilers="phases")
    EnergyMeter(profilers=host)
    return EnergyMeter(profilers=[KernelProfiler(), LineProfiler(), StepPhases(), host, "kernels"])


def papers(report: EnergyReport, comparison: Comparison) -> str:
    """Documents for papers and disclosures."""
    embodied = Embodied(kg=1500.0, lifetime_years=4.0)
    assert_type(latex(report), str)
    assert_type(bibtex([report], embodied=embodied), str)
    assert_type(model_card(report, training_type="fine-tuning"), str)
    assert_type(annex_xi(report, "json", flops=1e21, embodied=embodied), str)
    assert_type(comparing.bibtex(comparison, {"a": [report]}), str)
    return assert_type(comparing.latex(comparison, {"a": [report]}, embodied=embodied), str)


def reports(report: EnergyReport) -> str:
    """A report as other data, and reports in comparison."""
    assert_type(report.to_dict(), dict[str, Any])
    report.to_dataframe()
    formats: list[Format] = [*FORMATS, "csv", "parquet"]
    assert_type(save(report, Path("runs"), formats), list[Path])
    return str(assert_type(compare({"a": "runs/a", "b": [report]}), Comparison))


def errors(error: EnergyCallbacksError) -> str:
    """Every error is one of this package."""
    if isinstance(error, JournalError | MissingExtraError | ReadingMissed | SourceLost):
        return str(error)
    return (
        error.fix if isinstance(error, SourceUnavailable) else str(isinstance(error, SourceError))
    )


def lightning_batch_size() -> BatchSizeTuner:
    """The search as a callback of Lightning."""
    return BatchSizeTuner(length_fn=len, objective="energy")


def fakes() -> EnergyReport:
    """The fakes go where sensors and clocks go."""
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 200.0)
    meter = EnergyMeter(sources=[source], clock=clock, outputs=[InMemoryOutput()])
    GpuEnergyCallback(meter=meter)
    return build(Path("runs")) if meter.run_folder is None else load("energy.json")
