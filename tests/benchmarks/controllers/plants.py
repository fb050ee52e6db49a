"""Simulated GPUs that no predictor describes exactly, and the best operating points on them.

Differences from a preset are drawn from a seed: time, energy and use of the memory of a workload
(10 %); static power, and the shape of the energy over the clock (10 %); leakage; and the ambient
temperature. Tenants beside others are up to 10 % slower or faster than in the preset, the more of
them there are. The predictor has no such term. The power sensor shows the mean of 1 s.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from energy_callbacks.inference.planner.problem import Footprint, Problem
from energy_callbacks.inference.records import Tenant, most_tenants
from energy_callbacks.inference.simulated import presets
from energy_callbacks.inference.simulated.gpu import SimulatedGpu
from energy_callbacks.inference.simulated.physics import (
    Card,
    Running,
    Workload,
    memory_gib,
    running,
)

Array = NDArray[np.float64]
Tenants = tuple[Tenant, ...]
BATCHES: Final = (4, 8, 16, 32, 64, 96, 128, 192, 256)
SHARES_PCT: Final = (10, 20, 25, 30, 50, 100)
_VARIATION: Final = 0.1
_CONTENTION: Final = 0.1
_LEAKAGE_PER_K: Final = (0.002, 0.006)
_AMBIENT_C: Final = (20.0, 40.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnPlant:
    """Constants of a GPU with one model.

    Attributes:
        card: the GPU.
        model: name of the model.
        workload: its constants.
        contention: relative change of the throughput of a very large number of tenants.
        seed: seed of the noise.
    """

    card: Card
    model: str
    workload: Workload
    contention: float
    seed: int

    @classmethod
    def drawn(cls, key: str, model: str, seed: int) -> "DrawnPlant":
        """Return a GPU that differs from a preset; ``key`` is its name without ``sim:``."""
        rng = np.random.default_rng([seed, 27])
        card, workload = presets.card(key), presets.workloads(key)[model]
        time, memory, energy, host, static, exponent, lowest = np.exp(
            _VARIATION * rng.standard_normal(7)
        ).tolist()
        return cls(
            card=replace(
                card,
                static_w=tuple((mhz, power_w * static) for mhz, power_w in card.static_w),
                power_exponent=1.0 + (card.power_exponent - 1.0) * exponent,
                lowest_energy=min(card.lowest_energy * lowest, 0.95),
                leakage_per_k=float(rng.uniform(*_LEAKAGE_PER_K)),
                ambient_c=float(rng.uniform(*_AMBIENT_C)),
                sensor="boxcar",
            ),
            model=model,
            workload=_scaled(workload, time, memory, energy, host),
            contention=float(rng.uniform(-_CONTENTION, _CONTENTION)),
            seed=seed,
        )

    def gpu(self, seed: int) -> "ContendedGpu":
        """Return a new GPU of these constants, whose noise has this seed."""
        return ContendedGpu(self, seed)

    def problem(self) -> Problem:
        """Return the choices and the memory that all controllers have."""
        workload = self.workload
        return Problem(
            models=(self.model,),
            shares_pct=SHARES_PCT,
            batches=BATCHES,
            memory_gib=self.card.memory_gib,
            footprints={self.model: Footprint(workload.memory_gib, workload.sample_mib / 1024.0)},
        )

    def at_work(self, tenants: Tenants) -> Running:
        """Return what tenants do at each clock."""
        found = running(self.card, [(one, self.workload) for one in tenants])
        return contended(found, self.contention, len(tenants))

    def best(self, caps_w: Iterable[float]) -> dict[float, float]:
        """Return the highest throughput of a fixed operating point below each cap.

        All plans at all clocks are tried: every number of equal tenants, and all packings of two
        kinds. Power is that at the temperature that it causes.
        """
        curves = [self.steady(tenants) for tenants in plans(self)]
        powers_w, rates = (np.concatenate(column) for column in zip(*curves, strict=True))
        found = {}
        for cap_w in caps_w:
            below = powers_w <= cap_w
            if not below.any():
                raise ValueError(f"no plan of seed {self.seed} is below {cap_w:g} W")
            found[cap_w] = float(rates[below].max())
        return found

    def steady(self, tenants: Tenants) -> tuple[Array, Array]:
        """Return steady power in W and throughput at each clock."""
        work, card = self.at_work(tenants), self.card
        on = 1.0 - work.pause
        leaking = work.static_w * card.leakage_per_k
        cold_w = work.static_w + leaking * (card.ambient_c - 50.0) + work.dynamic_w * on
        return cold_w / (1.0 - leaking * card.kelvin_per_w), work.rates_per_s.sum(axis=0) * on


class ContendedGpu(SimulatedGpu):
    """A simulated GPU whose tenants have another contention than in the presets."""

    def __init__(self, plant: DrawnPlant, seed: int) -> None:
        self._contention = plant.contention
        super().__init__(plant.card, {plant.model: plant.workload}, uuid=f"SIM-{seed}", seed=seed)

    def _start(self) -> None:
        super()._start()
        work = contended(self._state.running, self._contention, len(self._tenants))
        self._state.run(work)


def contended(work: Running, contention: float, tenants: int) -> Running:
    """Return the work of tenants whose speed depends on their number."""
    factor = 1.0 + contention * (1.0 - 1.0 / max(tenants, 1))
    return replace(work, rates_per_s=work.rates_per_s * factor, dynamic_w=work.dynamic_w * factor)


def plans(plant: DrawnPlant) -> list[Tenants]:
    """Return all packings of one or two kinds of tenants whose memory suffices.

    Those of one kind have any number of tenants. Those of two kinds have as many of the second kind
    as the shares allow.
    """
    kinds = [
        Tenant(model=plant.model, share_pct=share, batch=batch)
        for share in SHARES_PCT
        for batch in BATCHES
    ]
    found: dict[Tenants, None] = {}
    for first in kinds:
        for count in range(1, most_tenants(first.share_pct) + 1):
            found[(first,) * count] = None
            left = 100.0 - count * first.share_pct
            for second in kinds:
                if second != first and (more := int(left / second.share_pct + 1e-9)):
                    both = (*(first,) * count, *(second,) * more)
                    found[tuple(sorted(both, key=_order))] = None
    return [tenants for tenants in found if _fits(plant, tenants)]


def _order(tenant: Tenant) -> tuple[float, int]:
    return tenant.share_pct, tenant.batch


def _fits(plant: DrawnPlant, tenants: Sequence[Tenant]) -> bool:
    used = sum(memory_gib(one, plant.workload, "infer") for one in tenants)
    return used <= plant.card.memory_gib


def _scaled(workload: Workload, time: float, memory: float, energy: float, host: float) -> Workload:
    factors = {
        **dict.fromkeys(("k1", "k2", "k3", "k5", "k6", "pause_us"), time),
        **dict.fromkeys(("sample_us", "batch_us"), memory),
        **dict.fromkeys(("sample_mj", "batch_mj"), energy),
        "host_ms": host,
    }
    return replace(
        workload, **{field: getattr(workload, field) * by for field, by in factors.items()}
    )
