"""Nested values are restored, in place or as copies."""

from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any, NamedTuple

import pytest

from energy_callbacks.tuning.snapshot.host_copy import keep, keep_attributes, keep_copy

torch = pytest.importorskip("torch")
nn = torch.nn


class Pair(NamedTuple):
    """A named tuple, as ``betas`` might be."""

    left: float
    right: tuple[float]


def nested() -> dict[str, Any]:
    """Return containers of the kinds that optimizers and schedulers hold."""
    return {
        "counter": Counter([2, 2, 4]),
        "ordered": OrderedDict(a=1, b=2),
        "default": defaultdict(list, {"a": [1]}),
        "list": [1, [2, {"three": 3}]],
        "pair": Pair(0.9, (0.99,)),
        "set": {1},
        "none": None,
    }


def spoil(value: dict[str, Any]) -> None:
    """Change each container."""
    value["counter"][2] += 5
    value["ordered"]["a"] = 7
    value["default"]["new"].append(1)
    value["list"][1][1]["four"] = value["list"].append(9)
    value["pair"] = None
    value["set"] = {2}
    value["extra"] = 1


def test_in_place_is_the_same_containers() -> None:
    """Containers keep their identity, because other objects refer to them."""
    value = nested()
    inner = value["list"], value["list"][1], value["counter"], value["default"]
    given = keep(value)
    for _ in range(2):
        spoil(value)
        assert given() is value
        assert value == nested()
        assert inner[0] is value["list"]
        assert inner[1] is value["list"][1]
        assert inner[2] is value["counter"]
        assert inner[3] is value["default"]


def test_copies_are_of_the_same_classes() -> None:
    """They are new each time, so that changes do not reach the snapshot."""
    value = nested()
    given = keep_copy(value)
    for _ in range(2):
        spoil(value)
        value = given()
        assert value == nested()
        assert {key: type(one) for key, one in value.items()} == {
            key: type(one) for key, one in nested().items()
        }


def test_tensors_in_place_and_copied() -> None:
    """The same tensor if it exists with the same type, otherwise a new one."""
    tensor = torch.ones(3)
    in_place, copied = keep([tensor]), keep_copy((tensor,))
    tensor.zero_()
    assert in_place()[0] is tensor
    assert tensor.tolist() == [1.0, 1.0, 1.0]
    assert copied()[0] is not tensor
    copied()[0].zero_()
    assert copied()[0].tolist() == [1.0, 1.0, 1.0]
    tensor.data = torch.zeros(2)
    assert in_place()[0].tolist() == [1.0, 1.0, 1.0]


class Counting(nn.Module):
    """A module with state in attributes, as metrics and users have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.child = nn.Module()
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
        """Change all attributes."""
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
    """Contents of the same containers, values of the same tensors, and no new attribute."""
    module = Counting()
    held = (module.child.correct, module.outputs, module.outputs[0], module.by_stage, module.newest)
    weight = module.layer.weight.detach().clone()
    restore = keep_attributes(module)
    for _ in range(2):  # more than once
        module(torch.ones(1, 2))
        restore()
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
