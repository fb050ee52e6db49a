"""Computes speed and power of the tenants of a simulated GPU at each of its clocks.

A batch of ``b`` samples at a share of ``r`` percent keeps a GPU at its highest clock ``F`` busy for
``(k1 b**2 + k2 b + k3) / (r + k4) + k5`` ms (the latency law of iGniter, IEEE TPDS 2023). The time
of its kernels is proportional to ``F / f``. The host launches kernels meanwhile, which takes
``host_ms``; the batch takes as long as the slower of both.

All tenants share the memory. Alone, a tenant uses it for a part of the time; if these parts add up
to more than 1, all tenants become slower by the sum. The same holds for the multiprocessors, if the
shares add up to more than 100 percent.

Power is ``static(f) + sum(h * (sample_mj + batch_mj / b)) * v(f)``, where ``h`` are the samples per
second of a tenant. ``v`` is the energy of a sample relative to that at ``F``: it is
``(f / F)**(g - 1)`` at high clocks, and constant at low clocks, where the voltage is constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from energy_callbacks.inference.records import Mode, Tenant

Array = npt.NDArray[np.float64]

# Work of a training step relative to inference: a backward pass costs about two forward passes
# (Kaplan et al. 2020, "Scaling laws for neural language models", section 2.1).
TRAINING_FACTOR: Final = 3.0
# How abruptly the voltage begins to rise; chosen so that the traces of Zeus are fitted well.
_VOLTAGE_SHARPNESS: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What a model costs on a GPU at its highest clock; see the module.

    Attributes:
        k1: kernels, ms percent per sample squared.
        k2: kernels, ms percent per sample.
        k3: kernels, ms percent.
        k4: share that adds to the tenant's, percent.
        k5: kernels that do not depend on the share, ms.
        k6: kernels that do not depend on the share, ms per sample.
        host_ms: time in which the host launches a batch, ms.
        sample_us: use of the memory per sample, us.
        batch_us: use of the memory per batch, us.
        sample_mj: energy per sample, mJ.
        batch_mj: energy per batch, mJ.
        pause_us: time per sample in which the tenant does nothing, us. Its pauses are longer than
            the time in which a power limit acts.
        memory_gib: memory of the process with the model, GiB.
        sample_mib: memory per sample of a batch, MiB.
        mode: what the values are for.
    """

    k1: float = 0.0
    k2: float
    k3: float
    k4: float
    k5: float
    k6: float = 0.0
    host_ms: float
    sample_us: float
    batch_us: float
    sample_mj: float
    batch_mj: float
    pause_us: float = 0.0
    memory_gib: float
    sample_mib: float
    mode: Mode = "infer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """Constants of a GPU.

    Attributes:
        name: name of the GPU, with the word "simulated".
        clocks_mhz: lowest and highest clock of the multiprocessors, MHz.
        step_mhz: step between two clocks, MHz.
        memory_clocks_mhz: clocks of the memory, MHz, in ascending order.
        limits_w: lowest and highest power limit, and the one after start, W.
        memory_gib: memory, GiB.
        idle_w: power without processes, W.
        static_w: pairs of a clock in MHz and the power with processes that wait in W; values
            between them are interpolated linearly.
        power_exponent: ``g`` in the module.
        lowest_energy: ``v`` in the module at low clocks.
        sharpness: how abruptly the slower of two limits replaces the other one; the higher, the
            more like a maximum.
        mps_overhead: slowdown by MPS with more than one tenant, as a share.
        memory_util_pct: memory utilisation that a GPU reports if its memory is always used.
        held_w: pairs of a power limit in W and the mean power in W that the GPU holds under it;
            values between them are interpolated linearly.
        held_mhz: lowest clock that a power limit causes, MHz.
        ambient_c: temperature without power, degrees Celsius.
        kelvin_per_w: steady rise of the temperature per W.
        thermal_s: time constant of the temperature, s.
        throttle_c: temperature above which the clock is reduced, degrees Celsius.
        leakage_per_k: relative change of the static power per kelvin, from 50 degrees Celsius.
        sensor: ``"instant"`` for the mean of 25 ms before a reading; ``"boxcar"`` for 1 s.
    """

    name: str
    clocks_mhz: tuple[float, float]
    step_mhz: float = 15.0
    memory_clocks_mhz: tuple[float, ...]
    limits_w: tuple[float, float, float]
    memory_gib: float
    idle_w: float
    static_w: tuple[tuple[float, float], ...]
    power_exponent: float
    lowest_energy: float
    sharpness: float = 6.0
    mps_overhead: float = 0.095
    memory_util_pct: float = 75.0
    held_w: tuple[tuple[float, float], ...]
    held_mhz: float
    ambient_c: float = 30.0
    kelvin_per_w: float
    thermal_s: float = 40.0
    throttle_c: float = 83.0
    leakage_per_k: float = 0.003
    sensor: str = "boxcar"

    @property
    def ladder_mhz(self) -> Array:
        """All clocks of the multiprocessors, MHz, in ascending order."""
        return _ladder_mhz(*self.clocks_mhz, self.step_mhz)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """What a GPU does at each of its clocks; arrays have one value per clock.

    Attributes:
        static_w: power of the GPU without work, W, at 50 degrees Celsius.
        dynamic_w: power of the work, W.
        rates_per_s: samples per second, one row per tenant.
        batches: batch size of each tenant.
        host_share: part of a batch's time that the host determines, one row per tenant.
        busy: share of time in which kernels run.
        memory_use: share of time in which the memory is used.
        pause: share of time in which all tenants pause; the other values do not include it.
    """

    static_w: Array
    dynamic_w: Array
    rates_per_s: Array
    batches: tuple[int, ...]
    host_share: Array
    busy: Array
    memory_use: Array
    pause: Array


@cache
def _ladder_mhz(lowest: float, highest: float, step_mhz: float) -> Array:
    steps = np.arange(int((highest - lowest) / step_mhz), -1, -1)
    found = np.asarray(highest - step_mhz * steps, dtype=np.float64)
    found.flags.writeable = False
    return found


def running(
    card: Card,
    tenants: Sequence[tuple[Tenant, Workload]],
    *,
    mode: Mode = "infer",
    memory_mhz: float | None = None,
    is_waiting: bool = False,
) -> Running:
    """Return what a GPU does at each of its clocks.

    Args:
        card: the GPU.
        tenants: its processes.
        mode: inference or training.
        memory_mhz: clock of the memory; ``None`` for the highest.
        is_waiting: whether the processes have nothing to do.
    """
    clocks = card.ladder_mhz
    nothing = np.zeros(clocks.size)
    batches = np.array([tenant.batch for tenant, _ in tenants])
    static_w = np.interp(clocks, *np.array(card.static_w).T)
    if not tenants or is_waiting:
        return Running(
            static_w=static_w if tenants else nothing + card.idle_w,
            dynamic_w=nothing,
            rates_per_s=np.zeros((len(tenants), clocks.size)),
            batches=tuple(batches),
            host_share=np.zeros((len(tenants), clocks.size)),
            busy=nothing,
            memory_use=nothing,
            pause=nothing,
        )
    speed = clocks / clocks[-1]
    memory_speed = 1.0 if memory_mhz is None else memory_mhz / card.memory_clocks_mhz[-1]
    kinds = {one: _alone(card, one, of, mode, speed) for one, of in dict(tenants).items()}
    kernels, alone, use, energy_mj, pause_us = (
        np.array(column) for column in zip(*(kinds[one] for one, _ in tenants), strict=True)
    )
    use = use.sum(axis=0) / memory_speed
    overhead = 1.0 + card.mps_overhead * (len(tenants) > 1)
    busy = np.minimum(kernels / alone, 1.0)
    shares = np.array([tenant.share_pct for tenant, _ in tenants]) / 100.0
    slower = np.maximum(_larger(1.0, use, card.sharpness), shares @ busy) * overhead
    rates = batches[:, None] / alone / slower * 1e3
    # All tenants are assumed to pause at the same time, as long as a mean one does.
    pause = (rates * pause_us[:, None]).mean(axis=0) / 1e6
    return Running(
        static_w=static_w,
        dynamic_w=(rates * energy_mj[:, None]).sum(axis=0) / 1e3 * _energy(card, speed),
        rates_per_s=rates,
        batches=tuple(batches),
        host_share=1.0 - busy,
        busy=1.0 - np.prod(1.0 - busy, axis=0),
        memory_use=np.minimum(use / slower, 1.0),
        pause=pause / (1.0 + pause),
    )


def memory_gib(tenant: Tenant, workload: Workload, mode: Mode) -> float:
    """Return the memory that a tenant needs, in GiB.

    A training also stores gradients, optimizer states and activations.
    """
    return workload.memory_gib + tenant.batch * workload.sample_mib * _work(workload, mode) / 1024


def _alone(
    card: Card,
    tenant: Tenant,
    workload: Workload,
    mode: Mode,
    speed: Array,
) -> tuple[Array, Array, Array, float, float]:
    """Return ms of kernels and of a batch, use of the memory, mJ and us of pause per sample."""
    w, b, work = workload, tenant.batch, _work(workload, mode)
    kernels = (w.k1 * b**2 + w.k2 * b + w.k3) / (tenant.share_pct + w.k4) + w.k5 + w.k6 * b
    kernels_ms = kernels * work / speed
    alone_ms = _larger(w.host_ms * work, kernels_ms, card.sharpness)
    use = (w.sample_us * b + w.batch_us) * work / 1e3 / alone_ms
    return kernels_ms, alone_ms, use, work * (w.sample_mj + w.batch_mj / b), work * w.pause_us


def _energy(card: Card, speed: Array) -> Array:
    return _larger(card.lowest_energy, speed ** (card.power_exponent - 1.0), _VOLTAGE_SHARPNESS)


def _work(workload: Workload, mode: Mode) -> float:
    if mode == workload.mode:
        return 1.0
    return TRAINING_FACTOR if mode == "train" else 1.0 / TRAINING_FACTOR


def _larger(one: float, other: Array, sharpness: float) -> Array:
    """Return a smooth maximum."""
    return np.asarray((one**sharpness + other**sharpness) ** (1.0 / sharpness))
