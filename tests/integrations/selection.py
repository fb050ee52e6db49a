"""Which cases of a test run in which lane, if several lanes run."""

from collections.abc import Callable, Collection

import pytest

from tests.lanes import FRAMEWORKS

# The lane that runs all cases of these tests, which differ in what our meter meets and not in what
# the framework does. Lanes of other frameworks run one case each.
_ALL_CASES = "lightning"
OF_THE_METER = frozenset(
    {
        "test_a_faulty_gpu_changes_no_step_and_is_reported",
        "test_the_wall_clock_may_be_set",
        "test_no_driver_at_the_start",
        "test_codecarbon_may_raise",
        "test_the_disk_may_be_full",
        "test_only_the_profiler_that_fails_stops",
        "test_a_sensor_may_return_garbage",
    }
)


def select_cases(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep one case of each test of the meter, if another lane runs all of them."""
    given = getattr(config, "workerinput", {"lane": None, "lanes": ()})
    others = {one.name for one in FRAMEWORKS} - {_ALL_CASES}
    if given["lane"] in others and _ALL_CASES in given["lanes"]:
        select(config, items, lambda item: not is_another_case(item, OF_THE_METER))


def is_another_case(item: pytest.Item, tests: Collection[str]) -> bool:
    """Return whether an item is a case, other than the first one, of one of these tests."""
    assert isinstance(item, pytest.Function)
    return item.originalname in tests and any(item.callspec.indices.values())


def select(
    config: pytest.Config, items: list[pytest.Item], keeps: Callable[[pytest.Item], bool]
) -> None:
    """Deselect all items but those to keep."""
    kept = [item for item in items if keeps(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = kept
