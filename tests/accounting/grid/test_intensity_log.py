"""Carbon intensities that change during a run: its journal, its metrics and its report."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.metrics import carbon
from energy_callbacks.report import build
from energy_callbacks.testing import FakeClock, ScriptedSource

NEW_YEAR_S = 1_767_225_600.0  # 2026-01-01T00:00Z
HOUR_S = 3600.0


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def started(
    folder: Path, clock: FakeClock, state: Mapping[str, Any] | None = None, **settings: Any
) -> EnergyMeter:
    """A running meter: 200 W until the monotonic time 1900 s, then 100 W."""
    path = folder / "hourly.csv"
    rows = (
        f"2026-01-01T{hour:02}:00Z,{value}"
        for hour, value in ((0, 100), (1, 400), (4, 50), (5, 50))
    )
    path.write_text("\n".join(("time,intensity", *rows)))
    source = ScriptedSource(
        clock,
        power_w=lambda t: 200.0 if t <= 1900.0 else 100.0,
        energy_j=lambda t: 200.0 * min(t, 1900.0) + 100.0 * max(t - 1900.0, 0.0),
        kind="mean",
        interval_s=4.0,
    )
    settings = {"carbon_intensity": path, **settings}
    config = EnergyConfig(report_dir=folder / "energy", **settings)
    return EnergyMeter(config=config, sources=[source], clock=clock).start(state=state)


def clock_at(hours: float) -> FakeClock:
    """A clock that starts so many hours after the beginning of 2026."""
    return FakeClock(start_s=1000.0, start_unix_s=NEW_YEAR_S + hours * HOUR_S)


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    """The lines of one kind in the journal of the first attempt."""
    (path,) = folder.glob("energy/attempts/1/*.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in found if line.get("kind", line["type"]) == kind]


def test_a_run_over_two_hours_has_the_emissions_computed_by_hand(tmp_path: Path) -> None:
    """900 s at 200 W and 100 s at 100 W with 100 g/kWh, then 500 s at 100 W with 400 g/kWh.

    190 kJ * 100 g/kWh + 50 kJ * 400 g/kWh, at 3600 kJ/kWh, times a PUE of 1.5: 16.25 g.
    """
    clock = clock_at(1.0 - 1000.0 / HOUR_S)
    meter = started(tmp_path, clock, pue=1.5)
    clock.advance(1500.0)
    meter.stop()
    by_hand_kg = 1.5 * (190e3 * 0.1 + 50e3 * 0.4) / 3.6e6
    assert by_hand_kg == pytest.approx(16.25e-3)
    report = build(tmp_path / "energy")
    assert report.energy.total.energy_j == pytest.approx(240e3, rel=1e-6)
    assert report.emissions is not None
    assert report.emissions.kg == pytest.approx(by_hand_kg, rel=1e-5)
    assert report.emissions.low_kg <= report.emissions.kg <= report.emissions.high_kg
    assert (report.emissions.place, report.emissions.year) == (None, 2026)
    assert report.emissions.source == (
        "hourly.csv, taken as exact; mean of 2 intensities, weighted by the energy used at each"
    )
    assert not {one.code for one in report.warnings} & {"place_unknown", "carbon_intensity_gap"}
    logged_g = meter.totals()["emissions/total_g"]
    assert logged_g == pytest.approx(1e3 * by_hand_kg, rel=1e-5)


def test_the_journal_has_the_intensities_that_were_used(tmp_path: Path) -> None:
    """A report is computed from journals alone: the file may be gone."""
    clock = clock_at(0.9)
    meter = started(tmp_path, clock, country="DEU")
    clock.advance(0.2 * HOUR_S)
    meter.stop()
    before = build(tmp_path / "energy").emissions
    (tmp_path / "hourly.csv").unlink()
    assert build(tmp_path / "energy").emissions == before
    found = [
        (line["t_s"], line["kg_per_kwh"], line["place"])
        for line in lines(tmp_path, "carbon_intensity")
    ]
    assert found == [(0.0, 0.1, "Germany"), (pytest.approx(0.1 * HOUR_S), 0.4, "Germany")]


def test_a_run_that_was_killed_has_its_emissions(tmp_path: Path) -> None:
    """The lines that were written before are enough."""
    clock = clock_at(0.9)
    meter = started(tmp_path, clock)
    clock.advance(0.2 * HOUR_S)
    report = build(tmp_path / "energy", now_unix_s=clock.unix_s() + 1e4)
    assert report.run.status == "cut off"
    assert report.emissions is not None
    energy_j = report.energy.total.energy_j
    assert energy_j is not None
    by_hand_kg = (0.1 * HOUR_S * 200.0 * 0.1 + (energy_j - 0.1 * HOUR_S * 200.0) * 0.4) / 3.6e6
    assert report.emissions.kg == pytest.approx(by_hand_kg, rel=1e-4)
    meter.stop()


@pytest.mark.parametrize("country", ["DEU", None])
def test_times_that_the_file_does_not_cover_are_reported(
    tmp_path: Path, country: str | None
) -> None:
    """The file has no row for 02:00. There, the annual average of the country is used.

    Without a country the emissions are a range. A warning and the source say so.
    """
    clock = clock_at(1.95)
    meter = started(tmp_path, clock, country=country)
    clock.advance(0.1 * HOUR_S)
    meter.stop()
    report = build(tmp_path / "energy")
    (warning,) = [one for one in report.warnings if one.code == "carbon_intensity_gap"]
    assert "hourly.csv has no carbon intensity for 2026-01-01 02:00 UTC" in warning.message
    assert "place_unknown" not in {one.code for one in report.warnings}
    assert report.emissions is not None
    assert "hourly.csv, taken as exact (50.0 % of the energy)" in report.emissions.source
    if country is None:
        assert report.emissions.kg is None
        assert "emissions/total_g" not in meter.totals()
    else:
        germany = carbon.intensity(carbon.place("DEU")).kg_per_kwh
        assert germany is not None
        expected_kg = 0.05 * HOUR_S * 200.0 * (0.4 + germany) / 3.6e6
        assert report.emissions.kg == pytest.approx(expected_kg, rel=1e-5)
    assert report.emissions.low_kg < report.emissions.high_kg


def test_each_attempt_has_the_intensities_of_its_own_time(tmp_path: Path) -> None:
    """Resumed an hour later: 20 kJ at 100 g/kWh and 20 kJ at 400 g/kWh."""
    clock = clock_at(0.5)
    meter = started(tmp_path, clock)
    clock.advance(100.0)
    meter.stop()
    state = meter.state()
    clock = clock_at(1.5)
    meter = started(tmp_path, clock, state)
    assert state["run_id"] == meter.run_id
    clock.advance(100.0)
    meter.stop()
    report = build(tmp_path / "energy")
    assert report.emissions is not None
    assert report.emissions.kg == pytest.approx(20e3 * (0.1 + 0.4) / 3.6e6, rel=1e-5)


@pytest.mark.parametrize("constant", [None, 400.0])
def test_live_emissions_are_those_of_the_windows_so_far(
    constant: float | None, tmp_path: Path
) -> None:
    """At each row, also after a resumption: each energy has the intensity of its own time.

    900 s at 200 W and 100 s at 100 W with 100 g/kWh, then 500 s at 100 W with 400 g/kWh, then
    500 s at 200 W with 400 g/kWh in a second attempt, whose intensity is from the file or constant.
    """
    clock = clock_at(1.0 - 1000.0 / HOUR_S)
    meter = started(tmp_path, clock)
    by_hand_g = {500.0: 100e3 * 0.1 / 3.6e3, 1000.0: 190e3 * 0.1 / 3.6e3}
    by_hand_g[1500.0] = by_hand_g[1000.0] + 50e3 * 0.4 / 3.6e3
    for t_s, expected_g in by_hand_g.items():
        clock.advance(1000.0 + t_s - clock.monotonic_s())
        assert meter.scalars()["emissions/total_g"] == pytest.approx(expected_g, rel=0.01), t_s
    meter.stop()
    state = json.loads(json.dumps(meter.state()))
    clock = clock_at(1.5)
    settings = {} if constant is None else {"carbon_intensity": constant}
    meter = started(tmp_path, clock, state, **settings)
    clock.advance(500.0)
    expected_g = by_hand_g[1500.0] + 100e3 * 0.4 / 3.6e3
    assert meter.scalars()["emissions/total_g"] == pytest.approx(expected_g, rel=0.01)
    meter.stop()
    assert meter.totals()["emissions/total_g"] == pytest.approx(expected_g, rel=1e-3)


def test_the_energy_of_a_part_is_computed_until_it_is_final(tmp_path: Path) -> None:
    """Over a long run with many rows, no energies of earlier rows are computed again."""
    clock = clock_at(0.999)
    meter = started(tmp_path, clock)
    clock.advance(60.0)
    log = meter._lifecycle.running._emissions_kg  # type: ignore[union-attr]
    assert len(log._parts) == 1
    assert len(log._past) == 1
    meter.stop()
