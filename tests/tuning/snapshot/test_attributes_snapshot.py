"""What modules hold beside their tensors is put back."""

from collections import defaultdict, deque
from typing import Any

import torch

from energy_callbacks.tuning.snapshot.attributes_snapshot import AttributesSnapshot


class Counting(torch.nn.Module):
    """As metrics and modules of users do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
        self.child = torch.nn.Module()
        self.child.correct = torch.zeros(3)
        self.count = 0
        self.outputs: list[Any] = [torch.ones(2)]
        self.by_stage: dict[str, list[float]] = defaultdict(list)
        self.newest: deque[int] = deque([1, 2], maxlen=2)
        self.names = {"a"}
        self.me = [self.by_stage]
        self.by_stage["loop"] = self.me  # type: ignore[assignment]
        self.owned = {"weight": self.layer.weight}

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Changes all of them."""
        self.child.correct += 1.0
        self.count += 1
        self.outputs[0].mul_(2.0)
        self.outputs.append(inputs)
        self.by_stage["train"].append(1.0)
        self.newest.append(3)
        self.names.add("b")
        self.later = inputs
        with torch.no_grad():
            self.layer.weight.add_(1.0)
        return self.layer(inputs)


def test_attributes_are_put_back() -> None:
    """Contents of the same containers, values of the same tensors, and nothing new."""
    module = Counting()
    held = (module.child.correct, module.outputs, module.outputs[0], module.by_stage, module.newest)
    weight = module.layer.weight.detach().clone()
    kept = AttributesSnapshot(module)
    for _ in range(2):  # more than once
        module(torch.ones(1, 2))
        kept.restore()
        assert module.child.correct.tolist() == [0.0, 0.0, 0.0]
        assert module.count == 0
        assert [one.tolist() for one in module.outputs] == [[1.0, 1.0]]
        assert set(module.by_stage) == {"loop"}
        assert module.by_stage["loop"] is module.me
        assert list(module.newest) == [1, 2]
        assert module.names == {"a"}
        assert not hasattr(module, "later")
        now = (module.child.correct, module.outputs, module.outputs[0], module.by_stage)
        assert all(one is before for one, before in zip((*now, module.newest), held, strict=True))
    # A parameter is another's to put back.
    assert torch.allclose(module.layer.weight, weight + 2.0)
    assert module.by_stage["new"] == []
