"""Drift of throughput and power."""

import pytest

from energy_callbacks.powercap.search.drift import has_drifted
from energy_callbacks.powercap.search.trial import Trial


def window(step_s: float, power_w: float, error: float = 0.005) -> Trial:
    """Return a window with relative errors."""
    step_j = step_s * power_w
    return Trial(
        value=300.0,
        step_s=step_s,
        step_j=step_j,
        step_s_stderr=error * step_s,
        step_j_stderr=error * step_j,
    )


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (window(1.04, 300.0), False),
        (window(1.06, 300.0), True),
        (window(0.94, 300.0), True),
        (window(1.0, 286.0), False),
        (window(1.0, 284.0), True),
        (window(1.0, 316.0), True),
        (window(1.06, 300.0, error=0.04), False),  # within the error
    ],
)
def test_changes_above_5_percent_re_open_the_search(later: Trial, *, expected: bool) -> None:
    """Of throughput or power, in both directions, if they are significant."""
    assert has_drifted(window(1.0, 300.0), later) is expected
