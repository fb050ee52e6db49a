"""The doctor lists what is measured, what is estimated, and why other sensors are unavailable."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from energy_callbacks.cli import main
from tests.fake_nvml import Constant, Scenario, fixtures, h200

fake_nvml = fixtures.fake_nvml


def test_a_machine_without_sensors(capsys: pytest.CaptureFixture[str]) -> None:
    """Every unavailable sensor has a reason; estimates are marked as such."""
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    origins = {(c["device"], c["quantity"]): c["origin"] for c in found["channels"]}
    assert origins["process", "rss"] == "measured"
    assert all(entry["reason"] for entry in found["unavailable"])
    host = {c["origin"] for c in found["channels"] if c["scope"] == "host"}
    assert host <= {"measured", "estimated"}
    assert host


def test_a_card_is_shown_with_its_power(fake_nvml, capsys: pytest.CaptureFixture[str]) -> None:
    """A card that draws 200 W is listed with 200 W, in JSON and in the table."""
    fake_nvml(Scenario(cards=(h200(Constant(200.0)),)), virtual=False)
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [power] = [c for c in found["channels"] if (c["scope"], c["quantity"]) == ("gpu", "power")]
    assert power["value"] == pytest.approx(200.0, rel=0.02)
    assert main(["doctor", "--country", "DEU"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Measured: gpu0. Estimated: ")
    assert "Location: Germany.\n" in shown
    assert re.search(r"power +200 W  nvmlDeviceGetSamples", shown)
    assert "Germany" in shown


def test_an_unknown_place_is_an_error_without_a_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A wrong --country exits with 2 and prints one line."""
    assert main(["doctor", "--country", "Atlantis"]) == 2
    assert "Atlantis" in capsys.readouterr().err


def test_settings_are_listed_with_their_origins(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of the file, of the environment and of the command; in JSON, defaults are listed, too."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "energy_callbacks.toml"
    path.write_text("price_per_kwh = 0.3\nreport_dir = 'runs'\n")
    monkeypatch.setenv("ENERGY_CALLBACKS_CURRENCY", "EUR")
    assert main(["doctor", "--json", "--country", "DEU"]) == 0
    found = json.loads(capsys.readouterr().out)
    origins = {one["name"]: (one["value"], one["origin"]) for one in found["settings"]}
    assert origins["price_per_kwh"] == (0.3, str(path))
    assert origins["report_dir"] == (str(tmp_path / "runs"), str(path))
    assert origins["currency"] == ("EUR", "environment variable ENERGY_CALLBACKS_CURRENCY")
    assert origins["country"] == ("DEU", "argument")
    assert origins["pue"] == (1.0, "default")
    assert main(["doctor"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "currency = 'EUR' from environment variable ENERGY_CALLBACKS_CURRENCY" in shown
    assert "all others: defaults" in shown
    assert "pue" not in shown


def test_a_wrong_settings_file_is_an_error_without_a_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The command exits with 2; the line names file, key and value."""
    monkeypatch.chdir(tmp_path)
    for text in ("contry = 'DEU'", "pue = 'high'"):
        (tmp_path / "energy_callbacks.toml").write_text(text)
        assert main(["doctor"]) == 2
        error = capsys.readouterr().err
        assert f"{tmp_path}/energy_callbacks.toml: " in error
        assert text.rpartition("'")[0].rpartition("'")[2] in error


def test_strict_needs_a_measured_gpu(fake_nvml, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a GPU, --strict exits with 1, also with --json; with a card, with 0."""
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("No GPU is measured. ")
    assert main(["doctor", "--strict", "--json"]) == 1
    told = capsys.readouterr()
    assert json.loads(told.out)["measured_gpus"] == []
    assert told.err == "energy-callbacks doctor: no GPU is measured\n"
    fake_nvml(Scenario(cards=(h200(Constant(200.0)), h200(Constant(200.0)))), virtual=False)
    assert main(["doctor", "--strict", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["measured_gpus"] == ["gpu0", "gpu1"]


@pytest.mark.usefixtures("fake_nvml")
def test_strict_without_a_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is that of the check, although a reader such as ``head`` has ended."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["doctor", "--strict"]) == 1
