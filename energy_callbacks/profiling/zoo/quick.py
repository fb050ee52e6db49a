"""Trains a known model briefly, and reports its speed, memory and energy (a quick profile)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from energy_callbacks.accounting.profiler_names import ProfilerName
from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.extras import requires
from energy_callbacks.meter import EnergyMeter

if TYPE_CHECKING:
    from energy_callbacks.profiling.zoo.table import ModelRow
    from energy_callbacks.report.model.schema import EnergyReport

MODELS: Final = ("simple_cnn", "resnet18", "resnet50", "transformer")
DATA: Final = ("digits", "synthetic", "cifar10")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickProfile:
    """The result of ``run_quick_profile``; notebooks display it as a table.

    Attributes:
        folder: folder with all written files.
        rows: one row per model.
        reports: report of each model; the key is the name of the model.
    """

    folder: Path
    rows: "tuple[ModelRow, ...]"
    reports: "Mapping[str, EnergyReport]"

    def __str__(self) -> str:
        """Return the table in Markdown."""
        from energy_callbacks.profiling.zoo.table import markdown

        return markdown(self.rows)

    _repr_markdown_ = __str__


def run_quick_profile(
    model_name: str = "resnet18",
    dataset: str = "cifar10",
    epochs: int = 1,
    batch_size: int = 64,
    *,
    data_dir: str | Path = "data",
    out: str | Path = "profiling_results",
    max_steps: int | None = None,
    device: str | None = None,
    profilers: Callable[[], Sequence[Profiler | ProfilerName]] = lambda: ["kernels"],
    config: EnergyConfig | None = None,
) -> QuickProfile:
    """Train one or all models in a plain PyTorch loop, and measure and profile each training.

    For each model, a run folder with the report and the traces is written into ``out``. The table
    of all models is written there as ``table.csv``, ``table.json`` and ``table.md``. Speed and
    energy in the table include the overhead of the profilers.

    Args:
        model_name: ``simple_cnn``, ``resnet18``, ``resnet50``, ``transformer`` or ``all``.
        dataset: ``cifar10``, ``digits`` or ``synthetic``; nothing is downloaded.
        epochs: number of passes through the data.
        batch_size: samples per step.
        data_dir: folder that contains CIFAR-10.
        out: folder for results.
        max_steps: maximum number of steps of each model; ``None`` trains all epochs.
        device: PyTorch device, such as ``cuda:0``; ``None`` selects a GPU if available, else the
            CPU.
        profilers: returns new profilers for one training, or their names.
        config: settings such as country and price; ``None`` uses the defaults.

    Raises:
        FileNotFoundError: if CIFAR-10 is not in ``data_dir``.
        MissingExtraError: if PyTorch, or scikit-learn for ``digits``, is not installed.
        ValueError: for an unknown name, or a number below one.
    """
    _check(model_name, dataset, epochs=epochs, batch_size=batch_size, max_steps=max_steps)
    with requires("torch", extra="lightning"):
        from energy_callbacks.profiling.zoo import torch_data, torch_models
    from energy_callbacks.profiling.zoo import table

    data = torch_data.load(dataset, Path(data_dir))
    batches = torch_models.batches(len(data[0]), epochs, batch_size)[:max_steps]
    reports, rows = {}, []
    for name in MODELS if model_name == "all" else (model_name,):
        folder = _new(Path(out) / f"{name}-{dataset}")
        settings = replace(config or EnergyConfig(), report_dir=folder, run_name=folder.name)
        with EnergyMeter(config=settings, profilers=profilers()) as meter:
            parameters = torch_models.train(name, data, batches, meter, device)
        meter.save_report()
        reports[name] = meter.report()
        rows.append(table.row(name, dataset, parameters, reports[name]))
        table.save(rows, Path(out))
    return QuickProfile(folder=Path(out), rows=tuple(rows), reports=reports)


def _check(model_name: str, dataset: str, **numbers: int | None) -> None:
    if model_name != "all" and model_name not in MODELS:
        known = ", ".join((*MODELS, "all"))
        raise ValueError(f"there is no model {model_name!r}; use one of {known}")
    if dataset not in DATA:
        raise ValueError(f"there are no data {dataset!r}; use one of {', '.join(DATA)}")
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


def _new(folder: Path) -> Path:
    """Return the folder, with a number appended to its name if it already contains a run."""
    names = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
    return next(one for one in names if not (one / "attempts").exists())
