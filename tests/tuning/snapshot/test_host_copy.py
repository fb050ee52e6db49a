"""Nested values come back as they were, in place or as copies."""

from collections import Counter, OrderedDict, defaultdict
from typing import Any, NamedTuple

import pytest

from energy_callbacks.tuning.snapshot.host_copy import keep, keep_copy

torch = pytest.importorskip("torch")


class Pair(NamedTuple):
    """As ``betas`` might be."""

    left: float
    right: tuple[float]


def nested() -> dict[str, Any]:
    """Containers of the kinds that optimizers and schedulers hold."""
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
    """Change each of them."""
    value["counter"][2] += 5
    value["ordered"]["a"] = 7
    value["default"]["new"].append(1)
    value["list"][1][1]["four"] = value["list"].append(9)
    value["pair"] = None
    value["set"] = {2}
    value["extra"] = 1


def test_in_place_is_the_same_containers() -> None:
    """Others hold on to them."""
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
    """And new each time, so that nobody can spoil what is kept."""
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
    """The same tensor where it lives on, of the same type; a new one where that has changed."""
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
