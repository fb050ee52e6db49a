"""The controllers by name."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from energy_callbacks.inference.control.batchdvfs import BatchDvfs
from energy_callbacks.inference.control.directcap import DirectCap
from energy_callbacks.inference.control.model_inverse import ModelInverse
from energy_callbacks.inference.control.morak import Morak
from energy_callbacks.inference.control.pctodl import PctoDl
from energy_callbacks.inference.control.powercap import PowerLimit
from energy_callbacks.inference.control.protocols import Controller, Tenants
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.protocols import PredictionModel

CONTROLLERS: Final[Mapping[str, Callable[..., Controller]]] = {
    one.name: one for one in (ModelInverse, PctoDl, Morak, BatchDvfs, DirectCap, PowerLimit)
}


def create(
    name: str,
    problem: Problem,
    model: PredictionModel,
    *,
    partition: Tenants | None = None,
    **options: Any,
) -> Controller:
    """Return a new controller.

    Args:
        name: its name, such as ``"model"``.
        problem: models, shares, batches, weights and limits; cap and settings are not used.
        model: the predictor; some controllers do not use it.
        partition: tenants to use instead of those that the controller would choose.
        options: further arguments of the controller.

    Raises:
        ValueError: if there is no such controller.
    """
    if name not in CONTROLLERS:
        raise ValueError(f"no controller {name!r}; choose from {', '.join(CONTROLLERS)}")
    return CONTROLLERS[name](problem, model, partition=partition, **options)
