"""emissions.csv is written where it was asked for, from any report, as carbonboard reads it."""

import csv
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest
from codecarbon.output_methods.emissions_data import EmissionsData

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.cli import main
from energy_callbacks.core.records import Device
from energy_callbacks.report import EnergyReport
from energy_callbacks.report.render import emissions_csv
from energy_callbacks.testing import FakeClock, ScriptedSource

CPU = Device(key="cpu0", kind="cpu", scope="host", name="RAPL")


def report_of(
    folder: Path, duration_s: float, *, gpu_w: float, cpu_w: float, **settings: str | float
) -> EnergyReport:
    """A run with constant powers of a GPU and a CPU, and no reading of memory."""
    clock = FakeClock()
    sources = [
        ScriptedSource(clock, power_w=lambda t_s: gpu_w, interval_s=duration_s / 60.0),
        ScriptedSource(clock, power_w=lambda t_s: cpu_w, interval_s=duration_s / 60.0, device=CPU),
    ]
    config = EnergyConfig(report_dir=folder / "run", **settings)  # type: ignore[arg-type]
    with EnergyMeter(config=config, sources=sources, clock=clock) as meter:
        clock.advance(duration_s)
    return meter.report()


def hour_in_quebec(folder: Path) -> EnergyReport:
    """2 kWh on GPUs and 1 kWh on CPUs at a PUE of 1.2."""
    place = {"country": "CAN", "region": "quebec"}
    return report_of(folder, 3600.0, gpu_w=2000.0, cpu_w=1000.0, pue=1.2, **place)


def written(report: EnergyReport, folder: Path) -> pd.DataFrame:
    """The file, read as carbonboard does."""
    emissions_csv.write(report, folder / "emissions.csv")
    return pd.read_csv(folder / "emissions.csv")


def test_columns_are_codecarbons(tmp_path: Path) -> None:
    """The header is that of the installed CodeCarbon, in its order, above one row."""
    table = written(hour_in_quebec(tmp_path), tmp_path)
    assert list(table.columns) == [field.name for field in fields(EmissionsData)]
    assert len(table) == 1


def test_units_are_codecarbons(tmp_path: Path) -> None:
    """2 kWh in an hour at PUE 1.2 are 2.4 kWh and 2400 W; 14.4 g in an hour are 4 micrograms/s."""
    report = hour_in_quebec(tmp_path)
    assert report.emissions is not None
    report = replace(report, emissions=replace(report.emissions, kg=0.0144))
    row = written(report, tmp_path).iloc[0]
    assert row.gpu_energy == pytest.approx(2.4)
    assert row.gpu_power == pytest.approx(2400.0)
    assert row.cpu_energy == pytest.approx(1.2)
    assert row.energy_consumed == pytest.approx(3.6)
    assert row.emissions == pytest.approx(0.0144)
    assert row.emissions_rate == pytest.approx(4e-6)
    assert (row.country_iso_code, row.country_name, row.region) == ("CAN", "Canada", "quebec")


def test_unknown_is_empty(tmp_path: Path) -> None:
    """Unknown memory, place and emissions are empty cells, not zeros."""
    row = written(report_of(tmp_path, 60.0, gpu_w=60.0, cpu_w=30.0), tmp_path).iloc[0]
    assert row[["ram_energy", "ram_power", "emissions", "country_name", "latitude"]].isna().all()


def test_a_row_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A minute of 60 W on a GPU and 30 W on a CPU in Germany: 1.5 Wh, each where it belongs."""
    report_of(tmp_path, 60.0, gpu_w=60.0, cpu_w=30.0, country="DEU")
    file = tmp_path / "emissions.csv"
    assert main(["report", str(tmp_path / "run"), "--emissions-csv", str(file)]) == 0
    assert str(file) in capsys.readouterr().out
    [row] = csv.DictReader(file.open())
    assert float(row["gpu_energy"]) == pytest.approx(1e-3, rel=1e-6)
    assert float(row["cpu_energy"]) == pytest.approx(0.5e-3, rel=1e-6)
    assert float(row["energy_consumed"]) == pytest.approx(1.5e-3, rel=1e-6)
    assert row["ram_energy"] == ""
    assert row["country_iso_code"] == "DEU"
    assert float(row["emissions"]) == pytest.approx(1.5e-3 * 0.381, rel=0.02)


def test_no_file_that_nobody_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run and its report leave nothing in the working directory."""
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    clock = FakeClock()
    source = ScriptedSource(clock, power_w=lambda t_s: 60.0)
    config = EnergyConfig(report_dir=tmp_path / "run")
    with EnergyMeter(config=config, sources=[source], clock=clock) as meter:
        clock.advance(10.0)
    meter.save_report()
    assert main(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out
    assert list((tmp_path / "empty").iterdir()) == []
