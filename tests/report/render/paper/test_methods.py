"""The methods paragraph states sensors, coverage, uncertainty, and what is missing."""

from dataclasses import replace

from energy_callbacks.report import Embodied
from energy_callbacks.report.build import build
from energy_callbacks.report.model.runs import ReportWarning
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report.render.paper.methods import sentences
from tests.report.journals import CPU, GPU, MACHINE, PROCESS, Attempt, Stretch, write


def text_of(report: EnergyReport, **more) -> str:
    """Return the paragraph as plain text."""
    return " ".join(f"{one.text}." for one in sentences([report], **more))


def test_sensors_methods_and_shares(report: EnergyReport) -> None:
    """Sensor, method, coverage and measured share are those of the report."""
    text = text_of(report)
    assert "The energy of the GPU was computed from nvmlDeviceGetSamples" in text
    assert "NVML reference, nvmlDeviceGetSamples" in text
    assert "The energy of the CPU was estimated from CodeCarbon's CPU model" in text
    assert "Readings cover 100 % of the time." in text
    assert "Sensors measured 82.3 % of the energy" in text  # 31.6 kJ of 38.4 kJ
    assert "fans, disks, network and losses of the power supply are not included" in text


def test_a_sensor_of_the_machine_includes_its_parts(tmp_path) -> None:
    """The parts of the machine are not added, and nothing is listed as missing."""
    power_w = {"gpu0": 200.0, "cpu0": 100.0, "machine": 500.0}
    train = Stretch(phase="train", duration_s=60.0, power_w=power_w)
    write(tmp_path, Attempt(stretches=(train,), devices=(GPU, CPU, MACHINE, PROCESS)))
    text = text_of(build(tmp_path))
    assert "The energy is that of the whole machine." in text
    assert "ipmitool dcmi power reading" in text
    assert "The energy of the GPU" not in text


def test_a_total_with_gaps_is_stated(report: EnergyReport) -> None:
    """Warnings that invalidate the total, and an unfinished run, are in the paragraph."""
    gaps = ReportWarning(code="gaps", message="Readings are missing for 9 s.")
    run = replace(report.run, status="cut off")
    text = text_of(replace(report, run=run, warnings=(gaps, *report.warnings)))
    assert "The energy is not that of the whole run: Readings are missing for 9 s." in text
    assert "The run did not finish (cut off)." in text
    assert "estimated by a model, not measured" not in text  # only a note


def test_embodied_emissions(report: EnergyReport) -> None:
    """They are not included, with a reference, unless the user gives them."""
    *_, missing = [one for one in sentences([report]) if "mbodied" in one.text]
    assert missing.text.endswith("are not included")
    assert missing.keys == ("gupta2021",)
    embodied = Embodied(kg=1500.0, lifetime_years=4.0)
    *_, given = [one for one in sentences([report], embodied) if "mbodied" in one.text]
    assert "1500 kgCO2e, 4 years" in given.text
    assert given.keys == ("sci2024",)


def test_the_pue_is_stated(report: EnergyReport) -> None:
    """A PUE of 1 leaves out the building; another one is a factor."""
    assert "A PUE of 1 means that the overhead" in text_of(report)
    emissions = replace(report.emissions, pue=1.4)
    text = text_of(replace(report, emissions=emissions))
    assert "energy times a PUE of 1.4 times" in text
    assert "A PUE of 1 means" not in text


def test_runs_with_different_devices_are_told_apart(report: EnergyReport) -> None:
    """A machine sensor in one run does not cover the devices of another run."""
    machine = replace(report.devices[0], kind="machine", scope="machine")
    whole = replace(report, devices=(machine,))
    text = " ".join(f"{one.text}." for one in sentences([report, whole, whole]))
    assert "The energy of 1 of 3 runs is that of GPU and CPU;" in text
    assert "The energy of 2 of 3 runs is that of the whole machine." in text
