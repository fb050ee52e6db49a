"""A plain training loop in PyTorch that is measured."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from energy_callbacks.meter import EnergyMeter
from energy_callbacks.profiling.zoo import torch_models

# The first steps choose kernels and fill caches; they are not measured as training.
_WARM_UP_STEPS = 3


def train(
    model_name: str,
    data: tuple[Tensor, Tensor],
    batches: Sequence[Tensor],
    meter: EnergyMeter,
    device: str | None,
) -> int:
    """Trains a new model for ten classes, in the phase ``train``.

    Args:
        model_name: one of ``MODELS``.
        data: images and labels.
        batches: indices of the samples of each step.
        meter: a meter that has been started.
        device: such as ``cuda:0``; ``None`` is a GPU of CUDA or ROCm if there is one.

    Returns:
        Number of parameters of the model.
    """
    torch.manual_seed(0)
    images, labels = data
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = torch_models.MODELS[model_name](10).to(device)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)  # of the previous model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with meter.phase("setup"):
        for batch in batches[:_WARM_UP_STEPS]:
            _step(model, optimizer, images[batch].to(device), labels[batch].to(device))
    with meter.phase("train"):
        for batch in batches:
            inputs, targets = images[batch].to(device), labels[batch].to(device)
            meter.mark("data_ready")
            _step(model, optimizer, inputs, targets)
            meter.step(samples=len(batch))
            meter.mark("batch_done")
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)  # wait for the last steps
    return sum(one.numel() for one in model.parameters())


def batches(samples: int, epochs: int, batch_size: int) -> list[Tensor]:
    """Returns the indices of the samples of each step; incomplete batches are left out."""
    size = min(batch_size, samples)
    generator = torch.Generator().manual_seed(0)
    return [
        batch
        for _ in range(epochs)
        for batch in torch.split(torch.randperm(samples, generator=generator), size)
        if len(batch) == size
    ]


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor, targets: Tensor
) -> None:
    loss: Any = nn.functional.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
