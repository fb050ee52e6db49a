"""Quick profile: trains a known model briefly and reports its cost."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from energy_callbacks.accounting.profilers import Profiler
from energy_callbacks.core.config import EnergyConfig
from energy_callbacks.core.extras import requires
from energy_callbacks.meter import EnergyMeter
from energy_callbacks.profiling.common.registry import create
from energy_callbacks.profiling.zoo.plan import TrainingPlan, chosen

if TYPE_CHECKING:
    from energy_callbacks.profiling.zoo.table import ModelRow
    from energy_callbacks.report.model.schema import EnergyReport


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickProfile:
    """The result of ``run_quick_profile``; a notebook shows its table.

    Attributes:
        folder: of all files.
        rows: one for each model.
        reports: by model.
    """

    folder: Path
    rows: "tuple[ModelRow, ...]"
    reports: "Mapping[str, EnergyReport]"

    def __str__(self) -> str:
        """The table."""
        from energy_callbacks.profiling.zoo.table import markdown

        return markdown(self.rows)

    def _repr_markdown_(self) -> str:
        return str(self)


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
    profilers: Callable[[], Sequence[Profiler]] | None = None,
    config: EnergyConfig | None = None,
) -> QuickProfile:
    """Train a model in a plain PyTorch loop, measured and profiled.

    Into ``out``: a run folder for each model with its report and traces, and the table over
    models as ``table.csv``, ``table.json`` and ``table.md``. What profilers cost is in the figures.

    Args:
        model_name: ``simple_cnn``, ``resnet18``, ``resnet50``, ``transformer`` or ``all``.
        dataset: ``cifar10``, ``digits`` or ``synthetic``; nothing is downloaded.
        epochs: how often to go through the data.
        batch_size: samples of a step.
        data_dir: where CIFAR-10 lies.
        out: folder for results.
        max_steps: at most this many for each model; ``None`` is all of the epochs.
        device: such as ``cuda:0``; ``None`` is a GPU if there is one, else the CPU.
        profilers: gives those of one training; ``None`` is ``KernelProfiler()``.
        config: country, price and the like.

    Raises:
        FileNotFoundError: if CIFAR-10 is not in ``data_dir``.
        MissingExtraError: if PyTorch is not installed.
        ValueError: for a name that is not known, or a number below one.
    """
    names = chosen(model_name)
    plan = TrainingPlan(
        dataset=dataset,
        epochs=epochs,
        batch_size=batch_size,
        data_dir=Path(data_dir),
        max_steps=max_steps,
        device=device,
    )
    with requires("torch", extra="lightning"):
        from energy_callbacks.profiling.zoo import torch_train
    from energy_callbacks.profiling.zoo import table

    data = torch_train.load(plan)
    reports, rows = {}, []
    for name in names:
        folder = _new(Path(out) / f"{name}-{dataset}")
        members = list(create(("kernels",))) if profilers is None else profilers()
        settings = replace(config or EnergyConfig(), report_dir=folder, run_name=folder.name)
        with EnergyMeter(config=settings, profilers=members) as meter:
            torch_train.train(plan, name, data, meter)
        meter.save_report()
        reports[name] = meter.report()
        rows.append(table.row(name, dataset, torch_train.parameters(name), reports[name]))
        table.save(rows, Path(out))
    return QuickProfile(folder=Path(out), rows=tuple(rows), reports=reports)


def _new(folder: Path) -> Path:
    """The folder, or with a number behind its name if it holds an older run."""
    names = (folder, *(folder.with_name(f"{folder.name}-{number}") for number in range(2, 1000)))
    return next(one for one in names if not (one / "attempts").exists())
