"""Creates simulated GPUs from the constants in ``presets.toml``."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.inference.records import Mode
from energy_callbacks.inference.simulated.gpu import SimulatedGpu
from energy_callbacks.inference.simulated.physics import TRAINING_FACTOR, Card, Workload

_FILE: Final = Path(__file__).with_name("presets.toml")
PREFIX: Final = "sim:"
_BASE: Final = "resnet50"  # the model from which others are derived


@cache
def _presets() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text(encoding="utf-8"))


def names() -> tuple[str, ...]:
    """Return the names of all presets, such as ``sim:v100``."""
    return tuple(f"{PREFIX}{key}" for key in _presets() if key not in ("models", "derived"))


def simulated_gpu(
    name: str, *, seed: int = 0, variation: float = 0.0, mode: Mode = "infer"
) -> SimulatedGpu:
    """Return a new simulated GPU.

    Args:
        name: name of a preset, such as ``sim:v100``.
        seed: seed of all noise and of the variation.
        variation: relative standard deviation of the time, energy and use of the memory of each
            workload, from those of the preset: a GPU that a model of the preset does not describe
            exactly.
        mode: inference or training, where ``run`` is not given a mode.

    Raises:
        ValueError: if there is no such preset.
    """
    if name not in names():
        raise ValueError(f"no simulated GPU {name!r}; choose from {', '.join(names())}")
    key = name.removeprefix(PREFIX)
    rng = np.random.default_rng([seed, 3])
    known = {
        model: _scaled(one, *np.exp(variation * rng.standard_normal(4)).tolist())
        for model, one in workloads(key).items()
    }
    return SimulatedGpu(card(key), known, uuid=f"SIM-{key}-{seed}", seed=seed, mode=mode)


def card(key: str) -> Card:
    """Return the constants of a GPU; ``key`` is the name of its preset without ``sim:``."""
    preset = {
        field: _tuples(value)
        for field, value in _presets()[key].items()
        if field not in ("workloads", "like")
    }
    return Card(**preset)


def workloads(key: str) -> Mapping[str, Workload]:
    """Return the models that a GPU can run."""
    preset = _presets()[key]
    like = preset.get("like")
    found = {}
    if like:
        found = {
            model: _scaled(one, like["time"], like["time"], like["energy"], like["host"])
            for model, one in workloads(like["card"]).items()
        }
    found |= {
        model: Workload(**(_memory(model) | values))
        for model, values in preset.get("workloads", {}).items()
    }
    derived = {model: _derived(found[_BASE], model) for model in _presets()["models"]}
    return derived | found


def _derived(base: Workload, model: str) -> Workload:
    """Return a model that was not measured; see ``presets.toml``."""
    constants, models = _presets()["derived"], _presets()["models"]
    one, other = models[model], models[_BASE]

    def ratio(added: float) -> float:
        return float((one["gflops"] + added) / (other["gflops"] + added))

    time, energy = (ratio(constants[name]) for name in ("time_gflops", "energy_gflops"))
    scaled = _scaled(base, time, time, energy, one["layers"] / other["layers"])
    memory = _memory(model)
    if base.mode == "train":
        memory["sample_mib"] *= TRAINING_FACTOR
    return replace(scaled, **memory)


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


def _memory(model: str) -> dict[str, Any]:
    constants, known = _presets()["derived"], _presets()["models"].get(model)
    if known is None:
        return {}
    weights_gib = 2 * known["parameters"] / 2**30
    return {
        "memory_gib": constants["context_gib"] + weights_gib,
        "sample_mib": constants["sample_mib"],
    }


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
