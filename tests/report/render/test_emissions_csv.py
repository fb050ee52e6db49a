"""emissions.csv is written where it was asked for, from any report."""

import csv
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.cli import main
from energy_callbacks.core.records import Device
from energy_callbacks.testing import FakeClock, ScriptedSource


def test_a_row_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A minute of 60 W on a GPU and 30 W on a CPU in Germany: 1.5 Wh, each where it belongs."""
    clock = FakeClock()
    gpu = ScriptedSource(clock, power_w=lambda t_s: 60.0)
    cpu_device = Device(key="cpu0", kind="cpu", scope="host", name="RAPL")
    cpu = ScriptedSource(clock, power_w=lambda t_s: 30.0, device=cpu_device)
    config = EnergyConfig(report_dir=tmp_path / "run", country="DEU")
    with EnergyMeter(config=config, sources=[gpu, cpu], clock=clock):
        clock.advance(60.0)
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
