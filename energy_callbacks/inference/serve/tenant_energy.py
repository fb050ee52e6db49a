"""Attributes the measured energy of a GPU to its tenants.

In each interval of 20 ms, the energy above that of an idle GPU is divided in proportion to the
activity of the multiprocessors: the share of a tenant times the time in which it ran batches. The
energy of the idle GPU is a part of its own. All parts together are the measured energy.

This is an attribution, not a measurement: two tenants with the same activity get the same energy,
even if the kernels of one of them need more power.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.core.records import Energy
from energy_callbacks.inference.records import Tenant
from energy_callbacks.inference.serve.batch_log import Batch

INTERVAL_S: Final = 0.02
"""Length of an interval, s: samples of power of an H200 have this distance."""
_Array = NDArray[np.float64]


@dataclass(slots=True)
class TenantEnergies:
    """Energies of tenants, attributed by the activity of the multiprocessors.

    Attributes:
        total_j: measured energy of the GPU in all windows, J.
        idle_j: energy of the idle GPU: its idle power in all the time, and all of its power in the
            time in which no tenant ran a batch, J.
        tenants_j: energy of each kind of tenant, J.
        not_attributed_j: energy of windows that could not be attributed, J.
        reason: why they could not; empty if there are none.
        is_estimate: whether a model has estimated the energy, and no sensor has measured it.
    """

    total_j: float = 0.0
    idle_j: float = 0.0
    tenants_j: dict[Tenant, float] = field(default_factory=dict)
    not_attributed_j: float = 0.0
    reason: str = ""
    is_estimate: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the energies as values of JSON types."""
        return {
            "label": "attributed" if self.tenants_j else "not attributed",
            "total_j": self.total_j,
            "idle_j": self.idle_j,
            "tenants": [
                {
                    "model": one.model,
                    "share_pct": one.share_pct,
                    "batch": one.batch,
                    "energy_j": energy_j,
                }
                for one, energy_j in self.tenants_j.items()
            ],
            "not_attributed_j": self.not_attributed_j,
            "reason": self.reason,
            "is_estimate": self.is_estimate,
        }


class TenantEnergyMeter:
    """Attributes the energy of windows that follow each other.

    Args:
        energy: returns the measured energy between two moments.
        idle_w: power of the GPU while tenants wait, W.
        reason: why energy cannot be attributed at all, such as other processes on the GPU; empty if
            it can.

    Attributes:
        found: the energies so far.
    """

    def __init__(
        self, energy: Callable[[float, float], Energy], idle_w: float, reason: str = ""
    ) -> None:
        self._energy, self._idle_w, self._reason = energy, idle_w, reason
        self.found = TenantEnergies()

    def add(self, start_s: float, end_s: float, batches: Sequence[Batch]) -> None:
        """Attribute the energy of a window.

        Args:
            start_s: start of the window, s.
            end_s: its end, s.
            batches: all batches that ran in it.
        """
        whole = self._energy(start_s, end_s)
        whole_j = whole.energy_j
        if whole_j is None:
            self.found.reason = "the energy of a window is not known"
            return
        self.found.is_estimate |= whole.method == "model"
        self.found.total_j += whole_j
        edges = np.linspace(start_s, end_s, math.ceil((end_s - start_s) / INTERVAL_S - 1e-6) + 1)
        energies = self._energies(edges, whole_j)
        reason = self._reason or ("" if energies is not None else "short intervals have no energy")
        if energies is None or reason:
            self.found.not_attributed_j += whole_j
            self.found.reason = reason
            return
        self._attribute(edges, energies, batches)

    def _energies(self, edges: _Array, whole_j: float) -> _Array | None:
        """Return the energy of each interval, J; their sum is that of the window."""
        each = [
            self._energy(float(start_s), float(end_s)).energy_j
            for start_s, end_s in itertools.pairwise(edges)
        ]
        known = [energy_j for energy_j in each if energy_j is not None]
        if len(known) < len(each) or math.fsum(known) <= 0.0:
            return None
        return np.array(known) * (whole_j / math.fsum(known))

    def _attribute(self, edges: _Array, energies: _Array, batches: Sequence[Batch]) -> None:
        activity = _activities(edges, batches)
        total = sum(activity.values(), start=np.zeros(len(energies)))
        idle = np.minimum(self._idle_w * np.diff(edges), energies)
        idle = np.where(total > 0.0, idle, energies)
        self.found.idle_j += math.fsum(idle)
        for tenant, one in activity.items():
            parts = np.divide(one, total, out=np.zeros(len(one)), where=total > 0.0)
            energy_j = math.fsum((energies - idle) * parts)
            self.found.tenants_j[tenant] = self.found.tenants_j.get(tenant, 0.0) + energy_j


def _activities(edges: _Array, batches: Sequence[Batch]) -> dict[Tenant, _Array]:
    """Return share times busy time of each kind of tenant in each interval."""
    by_worker: dict[tuple[int, Tenant], list[Batch]] = {}
    for one in batches:
        by_worker.setdefault((one.worker, one.tenant), []).append(one)
    found: dict[Tenant, _Array] = {}
    for (_, tenant), own in by_worker.items():
        busy = tenant.share_pct * np.diff(_busy_s(edges, own))
        found[tenant] = found.get(tenant, np.zeros(len(busy))) + busy
    return found


def _busy_s(times_s: _Array, batches: Sequence[Batch]) -> _Array:
    """Return the time in which a worker ran batches, up to each moment, s."""
    ordered = sorted(batches, key=lambda one: one.start_s)
    starts = np.array([one.start_s for one in ordered])
    ends = np.maximum(np.array([one.end_s for one in ordered]), starts)
    # Batches of a worker follow each other; the driver may report a start before the last end.
    starts[1:] = np.maximum(starts[1:], ends[:-1])
    ends = np.maximum(ends, starts)
    knots = np.column_stack([starts, ends]).ravel()
    done = np.cumsum(ends - starts)
    values = np.column_stack([done - (ends - starts), done]).ravel()
    return np.asarray(np.interp(times_s, knots, values), dtype=np.float64)
