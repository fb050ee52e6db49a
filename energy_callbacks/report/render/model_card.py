"""Converts a report to the block of a model card: ``co2_eq_emissions``, and its description."""

import json
from collections import Counter
from decimal import Decimal

from energy_callbacks.core import formatting, tables
from energy_callbacks.core.tables import escaped
from energy_callbacks.core.units import grams
from energy_callbacks.report.analysis.embodied import NOT_INCLUDED
from energy_callbacks.report.model import figure_format
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
        "hardware_used": hardware(report, "gpu") or hardware(report, "cpu") or "unknown",
        "training_type": training_type,
    }
    return {name: value for name, value in fields.items() if value is not None}


def model_card(report: EnergyReport, *, training_type: str | None = None) -> str:
    """Return the beginning of a model card: ``co2_eq_emissions`` as YAML, and a description.

    The YAML is that of model cards on the Hugging Face Hub, whichever framework trained the model.
    If the emissions are not known, the description has the reason and the YAML is left out.

    Args:
        report: the report of a run.
        training_type: as in ``co2_eq_emissions``.
    """
    try:
        fields = co2_eq_emissions(report, training_type=training_type)
    except ValueError as error:
        return f"{_description(report)}\nEmissions: {escaped(str(error))}.\n"
    lines = [f"  {name}: {_yaml(value)}\n" for name, value in fields.items()]
    return f"---\nco2_eq_emissions:\n{''.join(lines)}---\n\n{_description(report)}"


def _yaml(value: str | float) -> str:
    """Return a scalar of YAML. Many parsers read numbers with an exponent as text."""
    return json.dumps(value) if isinstance(value, str) else f"{Decimal(str(value)):f}"


def _description(report: EnergyReport) -> str:
    """Return the section of a model card for readers."""
    emissions = report.emissions
    rows = [
        ("", "value"),
        ("Hardware", hardware(report, "gpu", "cpu") or "unknown"),
        ("Time", formatting.duration(report.run.duration_s)),
        ("Energy", figure_format.energy_with_error(report.energy.total)),
        ("Measured by sensors", formatting.percent(report.measured_fraction)),
        ("Emissions", figure_format.emissions(emissions)),
        ("Grid", figure_format.location(emissions) if emissions else formatting.UNKNOWN),
        ("PUE", f"{emissions.pue:g}" if emissions else formatting.UNKNOWN),
    ]
    table = "\n".join(tables.markdown(rows, "<"))
    return f"## Environmental impact\n\n{table}\n\n{NOT_INCLUDED}.\n"


def hardware(report: EnergyReport, *kinds: str) -> str:
    """Return number and name of the devices of these kinds; empty if there are none."""
    names = Counter(one.name for kind in kinds for one in report.devices if one.kind == kind)
    return ", ".join(f"{count} x {name}" for name, count in names.items())
