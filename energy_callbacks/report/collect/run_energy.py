"""The energy that a run had used by a moment, from the rows of its journals."""

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.report.collect.merge import MergedAttempt

Array = NDArray[np.float64]


def energy_at(attempt: MergedAttempt, t_s: Array) -> Array | None:
    """Energy of an attempt up to moments of the run's time axis, in J, (n,).

    Args:
        attempt: all its counted devices.
        t_s: (n,).

    Returns:
        ``None`` if no energy is known.
    """
    energy_j = np.zeros(len(t_s))
    is_known = False
    for device in attempt.owned:
        columns = device.owner.columns.get(device.key) if device.is_counted else None
        if columns is None:
            continue
        rows = ~np.isnan(columns["energy_j"])
        if rows.any():
            at_s = attempt.start_of(device.owner) + np.append(0.0, columns.seen_s[rows])
            energy_j += np.interp(t_s, at_s, np.append(0.0, columns["energy_j"][rows]))
            is_known = True
    return energy_j if is_known else None


def whole_j(attempt: MergedAttempt) -> float:
    """What the attempt used, as far as it is known."""
    counted = (device for device in attempt.owned if device.is_counted)
    return sum(device.energy.energy_j or 0.0 for device in counted)
