"""Tests of ``SimulatedGpu``."""

from dataclasses import replace

import pytest

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.records import Configuration, MeasuredWindow
from energy_callbacks.inference.simulated.gpu import OutOfMemory
from energy_callbacks.powercap.settings import Setting
from tests.inference.simulated.cards import CARD, UUID, gpu, measured, tenants


def figures(row: MeasuredWindow) -> tuple[object, ...]:
    """Return what an unsuccessful row does not have."""
    return (
        row.throughput_per_s,
        row.power_mean_w,
        row.energy_j,
        row.latency_p50_ms,
        row.sm_mhz_measured,
        row.temperature_c,
        row.steps,
    )


def test_a_window() -> None:
    """Samples per second, latency, power and energy agree with the constants."""
    row = measured(gpu())
    assert (row.status, row.source, row.gpu_uuid) == ("ok", "simulated", UUID)
    assert "simulated" in row.gpu_name
    assert row.throughput_per_s == pytest.approx(1e4, rel=0.02)
    assert row.latency_p50_ms == pytest.approx(10.0, rel=0.02)
    assert row.power_mean_w == pytest.approx(260.0, rel=0.02)
    assert row.energy_j == pytest.approx(2.0 * 260.0, rel=0.02)
    assert row.steps == pytest.approx(200, rel=0.02)
    assert row.sm_mhz_measured == 1500.0
    assert row.latency_p95_ms is not None
    assert row.latency_p99_ms is not None
    assert row.latency_p50_ms < row.latency_p95_ms < row.latency_p99_ms


def test_the_same_seed_gives_the_same_rows() -> None:
    """Rows are equal for equal seeds, and differ for others."""
    assert measured(gpu(seed=3)) == measured(gpu(seed=3))
    assert measured(gpu(seed=3)).power_mean_w != measured(gpu(seed=4)).power_mean_w


def test_time_in_parts() -> None:
    """Many short advances do the same as a long one."""
    whole, parts = gpu(), gpu()
    for one in (whole, parts):
        one.run(tenants("busy", 50.0, 50.0))
    total = whole.advance(1.0)
    pieces = [parts.advance(0.007) for _ in range(142)] + [parts.advance(0.006)]
    assert parts.t_s == whole.t_s == 1.0
    assert parts.energy_j == whole.energy_j
    assert sum(one.samples[1] for one in pieces) == pytest.approx(total.samples[1])


def test_idle_and_waiting() -> None:
    """Power is idle power without processes, and static power with processes that wait."""
    one = gpu()
    idle = one.measure(Configuration(tenants=()), window_s=1.0, warmup_s=0.0, phase="idle")
    waiting = one.measure(
        Configuration(tenants=tenants("busy", 50.0, 50.0)),
        window_s=1.0,
        warmup_s=0.0,
        phase="static",
    )
    assert (idle.power_mean_w, waiting.power_mean_w) == (pytest.approx(20.0), pytest.approx(60.0))
    assert idle.throughput_per_s is waiting.throughput_per_s is None


@pytest.mark.parametrize("limit_w", [100.0, 150.0, 220.0])
def test_the_power_limit(limit_w: float) -> None:
    """The mean power is at most the limit, and not far below it."""
    row = measured(gpu(), power_limit_w=limit_w)
    assert row.power_mean_w is not None
    assert 0.97 * limit_w < row.power_mean_w < 1.005 * limit_w
    assert row.sm_mhz_measured is not None
    assert row.sm_mhz_measured < 1500.0


def test_the_limit_acts_after_some_time() -> None:
    """The power rises above the limit first, and is below it 200 ms later."""
    one = gpu()
    one.change(Setting(knob="limit", value=150.0))
    one.run(tenants("busy", 100.0))
    assert one.advance(0.05).power_w == pytest.approx(260.0, rel=0.02)
    one.advance(0.15)
    assert one.advance(0.1).power_w < 152.0
    one.change(Setting(knob="limit", value=400.0))
    one.advance(0.2)
    assert one.sm_mhz == 1500.0


def test_settings_of_a_configuration_end_with_its_window() -> None:
    """The limit and the clock are then those from before."""
    one = gpu()
    one.change(Setting(knob="limit", value=300.0))
    row = measured(one, power_limit_w=120.0, sm_mhz=900.0, mem_mhz=500.0)
    assert row.sm_mhz_measured == pytest.approx(900.0, abs=5.0)
    assert one.range("limit").present == 300.0
    assert measured(one).sm_mhz_measured == 1500.0


def test_the_clock_moves_by_one_step_per_ms() -> None:
    """10 ms after a change, it has moved by 150 MHz."""
    one = gpu()
    one.change(Setting(knob="clock", value=900.0))
    one.advance(0.01)
    assert one.sm_mhz == 1350.0
    one.advance(0.1)
    assert one.sm_mhz == 900.0


def test_the_memory_clock_changes_while_tenants_run() -> None:
    """Memory that was used for a tenth of the time slows a tenant by 4 at a 40th of its clock."""
    one = gpu(replace(CARD, memory_clocks_mhz=(25.0, 1000.0)))
    one.run(tenants("busy", 100.0))
    before, _ = one.advance(1.0), one.change(Setting(knob="memory_clock", value=25.0))
    assert one.advance(1.0).samples[0] == pytest.approx(before.samples[0] / 4.0, rel=0.02)


def test_the_temperature() -> None:
    """It approaches that of the steady state, by 63 % in one time constant."""
    one = gpu()
    one.run(tenants("busy", 100.0))
    start_c, end_c = one.temperature_c, 30.0 + 0.1 * 260.0
    one.advance(CARD.thermal_s)
    assert one.temperature_c == pytest.approx(start_c + 0.632 * (end_c - start_c), abs=0.3)


def test_a_hot_gpu() -> None:
    """Static power grows with the temperature, and above 83 degrees the clock falls."""
    one = gpu(replace(CARD, kelvin_per_w=0.4, thermal_s=1.0, leakage_per_k=0.003))
    one.run(tenants("busy", 100.0))
    one.advance(10.0)
    passed = one.advance(5.0)
    assert 81.0 < one.temperature_c < 85.0
    assert passed.sm_mhz < 1450.0
    one.run(tenants("busy", 100.0), is_waiting=True)
    static_w = 40.0 + 20.0 * (one.sm_mhz - 300.0) / 1200.0
    leakage = 1.0 + 0.003 * (one.temperature_c - 50.0)
    assert one.advance(0.001).power_w == pytest.approx(leakage * static_w, rel=0.006)
    assert leakage > 1.09


def test_pauses() -> None:
    """A tenant that pauses for a third of the time draws less than the limit on average."""
    row = measured(gpu(), "pausing", power_limit_w=200.0)
    assert row.power_mean_w is not None
    assert row.power_mean_w < 175.0
    free = measured(gpu(), "pausing")
    assert free.throughput_per_s == pytest.approx(1e4 / 1.5, rel=0.02)
    assert free.power_mean_w == pytest.approx(60.0 + 200.0 / 1.5, rel=0.02)


def test_out_of_memory() -> None:
    """It is a status; the row has no figures, in particular no zeros."""
    one = gpu()
    configuration = Configuration(tenants=tenants("busy", 25.0, 25.0, 25.0, 25.0, batch=200))
    row = one.measure(configuration, window_s=1.0, warmup_s=1.0)
    assert row.status == "oom"
    assert set(figures(row)) == {None}
    assert "11.8 GiB needed, 10 GiB available" in row.note
    with pytest.raises(OutOfMemory):
        one.run(configuration.tenants)
    assert one.advance(0.5).power_w == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"power_limit_w": 70.0}, "limit must be between 100 and 400 W, got 70"),
        ({"sm_mhz": 1000.0}, "the nearest is 1005 MHz"),
        ({"mem_mhz": 700.0}, "memory_clock must be one of"),
        ({"model": "gpt"}, "cannot run 'gpt'; it has busy, launched, pausing"),
    ],
)
def test_impossible_configurations(settings: dict[str, float], message: str) -> None:
    """They are rows with the status ``error``; the next row is measured."""
    one = gpu()
    row = measured(one, **settings)  # type: ignore[arg-type]
    assert row.status == "error"
    assert message in row.note
    assert set(figures(row)) == {None}
    assert measured(one).status == "ok"


def test_a_gpu_that_is_lost() -> None:
    """The window in which it is lost is an error, and nothing can be measured afterwards."""
    one = gpu(lost_at_s=4.5)
    rows = [measured(one) for _ in range(3)]
    assert [row.status for row in rows] == ["ok", "error", "error"]
    assert "the GPU is lost" in rows[1].note
    assert one.t_s == 4.5
    with pytest.raises(ActuatorError, match="lost"):
        one.advance(1.0)


def test_a_clock_that_is_refused() -> None:
    """A row says so, instead of having figures at another clock."""
    row = measured(gpu(refuses_clocks=True), sm_mhz=900.0)
    assert (row.status, set(figures(row))) == ("error", {None})
    assert "the clock 900 MHz was refused" in row.note


def test_another_process_changes_the_limit() -> None:
    """The limit changes at the stated time, also in the middle of a window."""
    one = gpu(foreign_limits=((2.0, 150.0),))
    one.run(tenants("busy", 100.0))
    assert one.advance(2.0).power_w > 250.0
    one.advance(0.5)
    assert one.advance(1.0).power_w < 151.0
    assert one.range("limit").present == 150.0


def test_an_instant_sensor() -> None:
    """It has a new value every 100 ms, which is a whole number of mW and follows at once."""
    one = gpu()
    one.advance(1.0)
    one.run(tenants("busy", 100.0))
    readings = one.advance(1.05).readings_w
    assert len(readings) == 10
    assert readings[0] == pytest.approx(260.0, rel=0.04)
    assert all(round(value, 3) == value for value in readings)


def test_a_sensor_with_a_mean_of_1_s() -> None:
    """After a step, it needs 1 s to show the new power."""
    one = gpu(replace(CARD, sensor="boxcar"))
    one.advance(1.0)
    one.run(tenants("busy", 100.0))
    readings = one.advance(1.2).readings_w
    assert readings[4] == pytest.approx((20.0 + 260.0) / 2.0, rel=0.05)
    assert readings[9] == pytest.approx(260.0, rel=0.04)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 0.0004])
def test_time_that_is_too_short(duration_s: float) -> None:
    """It is an error that says what is possible."""
    with pytest.raises(ValueError, match=r"at least 0\.001, got"):
        gpu().advance(duration_s)
