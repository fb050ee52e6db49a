"""Snapshots of the attributes of objects."""

from collections.abc import Iterable
from typing import Any


class TrainerAttributes:
    """Attributes of objects, and the items of dictionaries and lists among them.

    To prepare a model for training, the Trainer and Accelerate hang hooks on modules, wrap their
    ``forward``, and mark them as prepared; no state dictionary holds it. Values of tensors are
    not kept here.

    Args:
        owners: with a ``__dict__``.
    """

    def __init__(self, owners: Iterable[Any]) -> None:
        self._owners = [vars(owner) for owner in owners]
        self._attributes = [dict(held) for held in self._owners]
        values = [value for held in self._attributes for value in held.values()]
        self._dicts = [(value, dict(value)) for value in values if isinstance(value, dict)]
        self._lists = [(value, list(value)) for value in values if isinstance(value, list)]

    def restore(self) -> None:
        """The same objects under the same names; may be called any number of times."""
        for held, attributes in zip(self._owners, self._attributes, strict=True):
            held.clear()
            held.update(attributes)
        for one, items in self._dicts:
            one.clear()
            one.update(items)
        for several, members in self._lists:
            several[:] = members
