"""What the tests of Lightning share."""

import functools
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _packages_are_asked_once() -> Iterator[None]:
    """Cache the entry points, which each ``Trainer`` reads in 25 ms."""
    from lightning.fabric.utilities import registry

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", functools.cache(registry.entry_points))
        yield
