"""Detects that throughput or power has changed so much that the search must begin again."""

import math
from typing import Final

from energy_callbacks.core.records import NORMAL_95
from energy_callbacks.powercap.search.trial import Trial

# Relative change of throughput or power that re-opens the search.
_DRIFT: Final = 0.05


def has_drifted(reference: Trial, trial: Trial) -> bool:
    """Return whether throughput or power has changed between two windows at the same setting.

    It has, if one of them differs by more than 5 % and by more than the 95 % interval of their
    difference.

    >>> calm = Trial(value=300.0, step_s=0.1, step_j=28.0, step_s_stderr=0.001)
    >>> slow = Trial(value=300.0, step_s=0.106, step_j=29.7, step_s_stderr=0.001)
    >>> has_drifted(calm, calm), has_drifted(calm, slow)
    (False, True)

    Args:
        reference: the window at the end of the search.
        trial: a later window at the same setting.
    """
    errors_s = [window.step_s_stderr / window.step_s for window in (reference, trial)]
    errors_j = [window.step_j_stderr / window.step_j for window in (reference, trial)]
    time = abs(math.log(reference.step_s / trial.step_s))
    power = abs(math.log(reference.power_w / trial.power_w))
    return time > max(math.log1p(_DRIFT), NORMAL_95 * math.hypot(*errors_s)) or power > max(
        math.log1p(_DRIFT), NORMAL_95 * math.hypot(*errors_s, *errors_j)
    )
