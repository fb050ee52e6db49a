"""A plain training loop, measured."""

from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.profiling.zoo import torch_data, torch_models
from energy_callbacks.profiling.zoo.plan import TrainingPlan

Data: TypeAlias = tuple[Tensor, Tensor]

# First steps choose kernels and fill caches; they are no training.
_WARM_UP_STEPS = 3


def load(plan: TrainingPlan) -> Data:
    """Images and labels.

    Raises:
        FileNotFoundError: if CIFAR-10 is not there.
    """
    return torch_data.load(plan.dataset, plan.data_dir)


def parameters(model_name: str) -> int:
    """How many a model for ten classes has."""
    return sum(one.numel() for one in torch_models.MODELS[model_name](10).parameters())


def device_name(wanted: str | None) -> str:
    """The device to train on: a GPU of CUDA or ROCm if there is one."""
    return wanted or ("cuda" if torch.cuda.is_available() else "cpu")


def train(plan: TrainingPlan, model_name: str, data: Data, meter: EnergyMeter) -> None:
    """Train a model from the beginning, in the phase ``train``.

    Args:
        plan: what with, and how long.
        model_name: one of ``MODELS``.
        data: as ``load`` gives them.
        meter: that has been started.
    """
    torch.manual_seed(0)
    images, labels = data
    device = device_name(plan.device)
    model = torch_models.MODELS[model_name](10).to(device)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)  # of the model before this one
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with meter.phase("setup"):
        for batch in list(_batches(plan, len(images)))[:_WARM_UP_STEPS]:
            _step(model, optimizer, images[batch].to(device), labels[batch].to(device))
    with meter.phase("train"):
        for batch in _batches(plan, len(images)):
            inputs, targets = images[batch].to(device), labels[batch].to(device)
            meter.mark("data_ready")
            _step(model, optimizer, inputs, targets)
            meter.step(samples=len(batch))
            meter.mark("batch_done")
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)  # its last steps are training, too


def _batches(plan: TrainingPlan, samples: int) -> list[Tensor]:
    """Places of the samples of each step; what does not fill a batch is left out."""
    size = min(plan.batch_size, samples)
    chance = torch.Generator().manual_seed(0)
    found = [
        batch
        for _ in range(plan.epochs)
        for batch in torch.split(torch.randperm(samples, generator=chance), size)
        if len(batch) == size
    ]
    return found[: plan.max_steps]


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor
) -> None:
    loss: Any = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
