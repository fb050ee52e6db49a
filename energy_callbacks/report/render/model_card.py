"""Converts a report to the field ``co2_eq_emissions`` of a Hugging Face model card."""

from collections import Counter

from energy_callbacks.core.units import grams
from energy_callbacks.report.model.schema import EnergyReport


def co2_eq_emissions(
    report: EnergyReport, *, training_type: str | None = None
) -> dict[str, str | float]:
    """Return the emissions, in grams of CO2 equivalent, as metadata for a model on the Hub.

    The fields have the names in https://huggingface.co/docs/hub/model-cards-co2 (read on
    2026-11-21). For example::

        ModelCardData(co2_eq_emissions=co2_eq_emissions(report, training_type="fine-tuning"))

    Args:
        report: the report of a run with known energy and location.
        training_type: kind of training, such as ``"pre-training"`` or ``"fine-tuning"``; ``None``
            leaves out the field.

    Raises:
        ValueError: if the emissions are not known, or only a range of them.
    """
    emissions = report.emissions
    if emissions is None:
        raise ValueError(
            "the emissions of this run are not known, because its energy is not known; "
            "its report lists the missing sensors"
        )
    if emissions.kg is None:
        raise ValueError(
            "the location of this run is not set, so its emissions are known only as a range, "
            f"{grams(emissions.low_kg):.3g} g to {grams(emissions.high_kg):.3g} g; "
            "set country= for the training, such as GpuEnergyCallback(country='DEU')"
        )
    fields: dict[str, str | float | None] = {
        "emissions": grams(emissions.kg),
        "source": f"energy_callbacks {report.tool_version}; grid: {emissions.source}",
        "geographical_location": emissions.place,
        "hardware_used": _hardware(report),
        "training_type": training_type,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _hardware(report: EnergyReport) -> str:
    """Return number and name of the GPUs, or of the CPUs if there are no GPUs, or ``unknown``."""
    for kind in ("gpu", "cpu"):
        names = Counter(device.name for device in report.devices if device.kind == kind)
        if names:
            return ", ".join(f"{count} x {name}" for name, count in names.items())
    return "unknown"
