"""Fits the constants of simulated GPUs to measurements of real ones."""

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from energy_callbacks.inference.records import Mode, Tenant
from energy_callbacks.inference.simulated.physics import Array, Card, Running, Workload, running

# Samples of an epoch of the training sets, as their publishers state them. They only scale rates.
SAMPLES: Final = {
    "cifar100": 50_000,
    "imagenet": 1_281_167,
    "librispeech": 281_241,
    "movielens-1m": 1_000_209,
    "sentiment140": 1_600_000,
    "squad": 87_599,
}
_F_SCALE: Final = 0.03  # errors beyond this share count less
_PRIOR: Final = 0.02  # weight of the starting point, in errors of a logarithm
# Power limits alone do not tell how far a GPU is from its highest clock. The energy of a sample at
# that clock therefore stays near its starting point.
_TIGHT: Final = {"sample_mj": 3.0}
# Steps between clocks in fits, MHz: coarser than those of the card, for speed.
_STEP_MHZ: Final = 45.0

ZEUS_CARD: Final = (
    "static_high",
    "power_exponent",
    "lowest_energy",
    "held_low",
    "held_high",
    "held_mhz",
)
MPS_CARD: Final = ("static_high", "sharpness", "mps_overhead")
_BOTH: Final = ("k2", "k5", "host_ms", "sample_us", "batch_us", "sample_mj", "batch_mj")
ZEUS_WORK: Final = ("k1", *_BOTH, "pause_us")
MPS_WORK: Final = ("k3", "k4", "k6", *_BOTH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measured configuration: power and samples per second.

    Attributes:
        model: name of the workload.
        shares: MPS share of each tenant, percent.
        batch: batch size of each tenant.
        limit_w: power limit, W.
        rate: samples per second of all tenants.
        power_w: mean power, W.
        mode: inference or training.
        temperature_c: temperature, degrees Celsius.
    """

    model: str
    shares: tuple[float, ...] = (100.0,)
    batch: int
    limit_w: float
    rate: float
    power_w: float
    mode: Mode
    temperature_c: float = 50.0


def zeus_rows(path: Path) -> Sequence[Row]:
    """Read a trace of Zeus; rows that differ only in the optimizer become their mean."""
    found: dict[tuple[str, int, float], list[tuple[float, float]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            dataset, network = line["dataset"], line["network"]
            model = f"{network}_{dataset}" if network == "bert_base_uncased" else network
            key = (model, int(float(line["batch_size"])), float(line["power_limit"]))
            rate = SAMPLES[dataset] / float(line["time_per_epoch"])
            found.setdefault(key, []).append((rate, float(line["average_power"])))
    return [
        Row(
            model=model,
            batch=batch,
            limit_w=limit_w,
            rate=float(np.mean([rate for rate, _ in values])),
            power_w=float(np.mean([power_w for _, power_w in values])),
            mode="train",
        )
        for (model, batch, limit_w), values in sorted(found.items())
    ]


def mps_rows(path: Path, limit_w: float) -> Sequence[Row]:
    """Read windows of equal tenants under MPS."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(
                model=line["model"].split("|")[0],
                shares=tuple(json.loads(line["share_pct"])),
                batch=json.loads(line["batch"])[0],
                limit_w=limit_w,
                rate=float(line["throughput_total"]),
                power_w=float(line["power_mean_w"]),
                mode="infer",
                temperature_c=float(line["temp_c"]),
            )
            for line in csv.DictReader(file)
        ]


def predicted(card: Card, workload: Workload, rows: Sequence[Row]) -> Array:
    """Return samples per second and W of rows of one workload, one row each."""
    alike: dict[tuple[tuple[float, ...], int], list[int]] = {}
    for at, row in enumerate(rows):
        alike.setdefault((row.shares, row.batch), []).append(at)
    found = np.empty((len(rows), 2))
    for (shares, batch), ats in alike.items():
        tenants = [Tenant(model="", share_pct=one, batch=batch) for one in shares]
        work = running(card, [(one, workload) for one in tenants], mode=rows[ats[0]].mode)
        limits_w = np.array([rows[at].limit_w for at in ats])
        found[ats] = _limited(card, work, limits_w, rows[ats[0]].temperature_c)
    return found


def _limited(card: Card, work: Running, limits_w: Array, temperature_c: float) -> Array:
    """Return samples per second and W at the clocks that power limits allow."""
    held_w = np.interp(limits_w, *np.array(card.held_w).T)
    static_w = work.static_w * (1.0 + card.leakage_per_k * (temperature_c - 50.0))
    clocks = card.ladder_mhz
    clock = np.maximum(np.interp(held_w, static_w + work.dynamic_w, clocks), card.held_mhz)
    rate, static, dynamic, pause = (
        np.interp(clock, clocks, one)
        for one in (work.rates_per_s.sum(axis=0), static_w, work.dynamic_w, work.pause)
    )
    return np.column_stack([rate * (1.0 - pause), static + dynamic * (1.0 - pause)])


def with_constants(card: Card, values: Mapping[str, float]) -> Card:
    """Return a card with other constants, whose names are those of ``constants``.

    The static power at the lowest clock stays the same share of that at the highest.
    """
    new = constants(card) | dict(values)
    low, high = card.clocks_mhz
    limits = card.limits_w
    return replace(
        card,
        static_w=(
            (low, new["static_high"] * card.static_w[0][1] / card.static_w[-1][1]),
            (high, new["static_high"]),
        ),
        power_exponent=new["power_exponent"],
        lowest_energy=min(new["lowest_energy"], 1.0),
        held_w=((limits[0], new["held_low"]), (limits[1], new["held_high"])),
        held_mhz=new["held_mhz"],
        sharpness=new["sharpness"],
        mps_overhead=new["mps_overhead"],
    )


def constants(card: Card) -> dict[str, float]:
    """Return the constants of a card that can be fitted."""
    return {
        "static_high": card.static_w[-1][1],
        "power_exponent": card.power_exponent,
        "lowest_energy": card.lowest_energy,
        "held_low": card.held_w[0][1],
        "held_high": card.held_w[-1][1],
        "held_mhz": card.held_mhz,
        "sharpness": card.sharpness,
        "mps_overhead": card.mps_overhead,
    }


def start(rows: Sequence[Row]) -> Workload:
    """Return a first guess of a workload, from its rows at the highest limit."""
    alone = [row for row in rows if row.shares == (100.0,)]
    top = max(row.limit_w for row in alone)
    free = sorted((row for row in alone if row.limit_w == top), key=lambda row: row.batch)
    first, last = free[0], free[-1]
    sample_ms = 1e3 / max(row.rate for row in free)
    return Workload(
        k1=5e-2 * 100 * sample_ms / last.batch,
        k2=70 * sample_ms,
        k3=sample_ms,
        k4=1.0,
        k5=0.3 * first.batch / first.rate * 1e3,
        k6=0.3 * sample_ms,
        host_ms=0.9 * first.batch / first.rate * 1e3,
        sample_us=600 * sample_ms,
        batch_us=100 * first.batch / first.rate * 1e3,
        sample_mj=0.7 * 1e3 * last.power_w / last.rate,
        batch_mj=10.0,
        pause_us=50 * sample_ms,
        memory_gib=0.0,
        sample_mib=0.0,
        mode=rows[0].mode,
    )


def fit(
    card: Card,
    groups: Mapping[str, Sequence[Row]],
    of_card: Sequence[str],
    of_work: Sequence[str],
    most: int = 60,
) -> tuple[Card, dict[str, Workload]]:
    """Fit a card and its workloads to rows by least squares of logarithms.

    Args:
        card: has the constants that are not fitted, and the starting point of the others.
        groups: rows of each workload.
        of_card: names of the card's constants to fit.
        of_work: names of the workloads' constants to fit; the others of ``start`` are 0.
        most: largest number of steps.
    """
    rough = replace(card, step_mhz=_STEP_MHZ)
    fixed = dict.fromkeys({*ZEUS_WORK, *MPS_WORK} - set(of_work), 0.0)
    starts = {name: replace(start(rows), **fixed) for name, rows in groups.items()}
    shared = np.log([constants(card)[name] for name in of_card])
    own = [np.log([getattr(one, name) for name in of_work]) for one in starts.values()]
    first = np.concatenate([shared, *own])
    names = [*of_card, *[*of_work] * len(starts)]
    weights = np.array([_TIGHT.get(name, _PRIOR) for name in names])

    def built(values: Array, card: Card) -> tuple[Card, dict[str, Workload]]:
        found = dict(zip(of_card, np.exp(values[: len(of_card)]).tolist(), strict=True))
        parts = np.exp(values[len(of_card) :]).reshape(len(starts), len(of_work)).tolist()
        return with_constants(card, found), {
            name: replace(one, **dict(zip(of_work, part, strict=True)))
            for (name, one), part in zip(starts.items(), parts, strict=True)
        }

    def errors(values: Array) -> Array:
        found, models = built(values, rough)
        parts = [
            np.log(predicted(found, models[name], rows) / observed(rows)).ravel()
            for name, rows in groups.items()
        ]
        return np.concatenate([*parts, weights * (values - first)])

    solution = least_squares(
        errors,
        first,
        loss="soft_l1",
        f_scale=_F_SCALE,
        jac_sparsity=_sparsity(groups, len(of_card), len(of_work)),
        max_nfev=most,
    )
    return built(solution.x, card)


def observed(rows: Sequence[Row]) -> Array:
    """Return measured samples per second and W, one row each."""
    return np.array([(row.rate, row.power_w) for row in rows])


def _sparsity(groups: Mapping[str, Sequence[Row]], shared: int, own: int) -> npt.NDArray[np.int8]:
    """Return which values each error depends on."""
    count = shared + own * len(groups)
    blocks = []
    for at, rows in enumerate(groups.values()):
        block = np.zeros((2 * len(rows), count), dtype=np.int8)
        block[:, :shared] = 1
        block[:, shared + at * own : shared + (at + 1) * own] = 1
        blocks.append(block)
    return np.concatenate([*blocks, np.eye(count, dtype=np.int8)])
