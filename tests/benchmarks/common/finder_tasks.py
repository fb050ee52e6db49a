"""Real trainings for batch-size finders.

On a GPU they fill its memory. On a CPU a training of digits raises an out-of-memory error for more
samples than ``CPU_LIMIT``, as the memory of a machine takes too long to fill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

CPU_LIMIT: Final = 1500
_WORDS, _LENGTH = 32_000, 512


class Rows(Dataset[tuple[Tensor, Tensor]]):
    """An endless number of equal rows: their content does not change time or memory."""

    def __init__(self, row: tuple[Tensor, Tensor]) -> None:
        self._row = row

    def __len__(self) -> int:
        return 2**20

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self._row


class Training(pl.LightningModule):
    """A network, its optimizer and its data, for Lightning and for a plain loop."""

    batch_size = 2

    def __init__(
        self,
        net: nn.Module,
        row: tuple[Tensor, Tensor],
        optimizer: Callable[[Any], torch.optim.Optimizer],
        *,
        precision: Any = "32-true",
        limit: int | None = None,
    ) -> None:
        super().__init__()
        self.net = net
        self.precision = precision
        self._row, self._optimizer, self._limit = row, optimizer, limit
        self._batch: tuple[Tensor, Tensor] | None = None

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self._optimizer(self.parameters())

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(Rows(self._row), batch_size=self.batch_size)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int = 0) -> Tensor:
        inputs, targets = batch
        if self._limit is not None and len(inputs) > self._limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        outputs = self.net(inputs)
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())

    def plain_step(self, optimizer: torch.optim.Optimizer, size: int) -> None:
        """Run a step on a batch that is on the device already."""
        if self._batch is None or len(self._batch[0]) != size:
            self._batch = None
            inputs, targets = (part.to(self.device) for part in self._row)
            self._batch = (
                inputs.expand(size, *inputs.shape).contiguous(),
                targets.expand(size, *targets.shape).contiguous(),
            )
        optimizer.zero_grad()
        kind, is_mixed = self.device.type, self.precision == "bf16-mixed"
        with torch.autocast(kind, torch.bfloat16, enabled=is_mixed):
            loss = self.training_step(self._batch)
        loss.backward()
        optimizer.step()

    def forget_batch(self) -> None:
        """Release the memory of the batch."""
        self._batch = None


class Transformer(nn.Module):
    """Twelve causal layers of width 768, as in GPT-2 small (Radford et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_WORDS, 768)
        layer = nn.TransformerEncoderLayer(
            768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.out = nn.Linear(768, _WORDS, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], tokens.device)
        return self.out(self.layers(self.words(tokens), mask=mask, is_causal=True))


def digits() -> Training:
    """Return a convolution of 8 x 8 images, for a CPU."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip
    row = torch.rand(1, 8, 8), torch.tensor(3)
    return Training(net, row, torch.optim.Adam, limit=CPU_LIMIT)


def resnet() -> Training:
    """Return ResNet-50 on 224 x 224 images (He et al. 2016), mixed precision, for a GPU."""
    import torchvision

    row = torch.rand(3, 224, 224), torch.tensor(3)
    net = torchvision.models.resnet50().to(memory_format=torch.channels_last)
    return Training(
        net, row, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), precision="bf16-mixed"
    )


def transformer() -> Training:
    """Return 124 million parameters, 512 tokens a sample, mixed precision, for a GPU."""
    row = torch.randint(_WORDS, (_LENGTH,)), torch.randint(_WORDS, (_LENGTH,))
    return Training(Transformer(), row, torch.optim.AdamW, precision="bf16-mixed")


@dataclass(frozen=True)
class Task:
    """A training and its name; created again for each finder."""

    name: str
    make: Callable[[], Training]


def tasks() -> list[Task]:
    """Return the trainings for this machine."""
    if not torch.cuda.is_available():
        return [Task("digits", digits)]
    return [Task("ResNet-50, images", resnet), Task("transformer, text", transformer)]
