"""Builds ResNets, a transformer and a small CNN with PyTorch alone, and trains them.

ResNets: He et al., Deep Residual Learning for Image Recognition, arXiv:1512.03385, table 1. The
stride of a bottleneck is in its 3 x 3 convolution, as in later implementations. Transformer: a
small version of Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv:2010.11929. The tokens of
the transformer are patches of the image.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

from energy_callbacks.meter import EnergyMeter


def resnet18(classes: int = 1000) -> nn.Module:
    """Return a ResNet of 18 layers: 11,689,512 parameters with 1000 classes."""
    return _resnet((2, 2, 2, 2), _basic, 1, classes)


def resnet50(classes: int = 1000) -> nn.Module:
    """Return a ResNet of 50 layers: 25,557,032 parameters with 1000 classes."""
    return _resnet((3, 4, 6, 3), _bottleneck, 4, classes)


def simple_cnn(classes: int = 10) -> nn.Module:
    """Return a network of two convolutions and a linear layer, for images of any size."""
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4)),
        *(nn.Flatten(), nn.Linear(64 * 4 * 4, classes)),
    )


class Transformer(nn.Module):
    """A transformer with four layers of width 128; tokens are the 64 patches of a 32 x 32 image."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        width = 128
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.places = nn.Parameter(0.02 * torch.randn(1, 64, width))
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4)
        self.head = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Return the scores of the classes for images of shape (n, 3, 32, 32)."""
        words = self.patches(images).flatten(2).transpose(1, 2)
        scores: Tensor = self.head(self.layers(words + self.places).mean(dim=1))
        return scores


class _Residual(nn.Module):
    """Adds the outputs of a branch and of a shortcut, and applies ReLU to the sum."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, values: Tensor) -> Tensor:
        return torch.relu(self.branch(values) + self.shortcut(values))


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs))


def _basic(inputs: int, width: int, stride: int) -> nn.Module:
    first = _convolution(inputs, width, 3, stride)
    return nn.Sequential(first, nn.ReLU(), _convolution(width, width, 3))


def _bottleneck(inputs: int, width: int, stride: int) -> nn.Module:
    narrow, middle = _convolution(inputs, width, 1), _convolution(width, width, 3, stride)
    return nn.Sequential(narrow, nn.ReLU(), middle, nn.ReLU(), _convolution(width, 4 * width, 1))


def _resnet(
    depths: tuple[int, ...],
    branch: Callable[[int, int, int], nn.Module],
    expansion: int,
    classes: int,
) -> nn.Module:
    layers: list[nn.Module] = [_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for block in range(depth):
            stride = 2 if stage and not block else 1
            outputs = width * expansion
            is_same = inputs == outputs and stride == 1
            shortcut = nn.Identity() if is_same else _convolution(inputs, outputs, 1, stride)
            layers.append(_Residual(branch(inputs, width, stride), shortcut))
            inputs = outputs
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    return nn.Sequential(*layers, *head)


MODELS: Final[Mapping[str, Callable[[int], nn.Module]]] = {
    "simple_cnn": simple_cnn,
    "resnet18": resnet18,
    "resnet50": resnet50,
    "transformer": Transformer,
}
# Number of steps in phase ``setup``, before training. In these steps, libraries choose kernels, and
# caches fill.
_WARM_UP_STEPS: Final = 3


def train(
    model_name: str,
    data: tuple[Tensor, Tensor],
    batches: Sequence[Tensor],
    meter: EnergyMeter,
    device: str | None,
) -> int:
    """Train a new model for ten classes, first in phase ``setup`` (warm-up), then in ``train``.

    Args:
        model_name: one of ``MODELS``.
        data: images and labels.
        batches: indices of the samples of each step.
        meter: a meter that has been started.
        device: PyTorch device, such as ``cuda:0``; ``None`` selects a GPU of CUDA or ROCm if
            available, else the CPU.

    Returns:
        Number of parameters of the model.
    """
    torch.manual_seed(0)
    images, labels = data
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    model = MODELS[model_name](10).to(device)
    if device.startswith("cuda"):
        torch.cuda.reset_peak_memory_stats(device)  # discard the peak of the previous model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    with meter.phase("setup"):
        for batch in batches[:_WARM_UP_STEPS]:
            _step(model, optimizer, images[batch].to(device), labels[batch].to(device))
    with meter.phase("train"):
        for batch in batches:
            inputs, targets = images[batch].to(device), labels[batch].to(device)
            meter.data_ready()
            _step(model, optimizer, inputs, targets)
            meter.step(samples=len(batch))
            meter.batch_done()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)  # wait for the last steps
    return sum(one.numel() for one in model.parameters())


def batches(samples: int, epochs: int, batch_size: int) -> list[Tensor]:
    """Return the indices of the samples of each step; incomplete batches are left out.

    A batch contains ``batch_size`` samples, or all samples if there are fewer.
    """
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
