"""Power and speed of a card follow its settings, in all processes, and setters are logged."""

import itertools
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pynvml
import pytest

from tests.fake_nvml import (
    Constant,
    FakeNvml,
    Fault,
    Mig,
    PowerModel,
    Scenario,
    Settings,
    Square,
    Staircase,
    a100,
    fixtures,
    ideal,
    pascal,
)
from tests.fake_nvml.scenario import Card

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]

EPOCH_S = 1_790_000_000.0
MODEL = PowerModel(busy_w=400.0, static_w=60.0)
WAVE = Square(low_w=60.0, high_w=400.0, period_s=0.23, duty=0.6)


def start(play: Play, *cards: Card, faults: tuple[Fault, ...] = ()) -> tuple[FakeNvml, object]:
    """The scenario in virtual time at its epoch, and the first card's handle."""
    nvml = play(Scenario(cards=cards, faults=faults, epoch_unix_s=EPOCH_S))
    pynvml.nvmlInit()
    return nvml, pynvml.nvmlDeviceGetHandleByIndex(0)


def change_often(nvml: FakeNvml, card: object) -> None:
    """Change all settings, 0.7 s apart."""
    for change in (
        lambda: pynvml.nvmlDeviceSetPowerManagementLimit(card, 250_000),
        lambda: pynvml.nvmlDeviceSetGpuLockedClocks(card, 1005, 1005),
        lambda: nvml.set_load(0.0),
        lambda: pynvml.nvmlDeviceSetPowerManagementLimit(card, 200_000),
        lambda: nvml.set_load(0.8),
        lambda: pynvml.nvmlDeviceSetMemoryLockedClocks(card, 1300, 1300),
        lambda: pynvml.nvmlDeviceResetGpuLockedClocks(card),
        lambda: pynvml.nvmlDeviceResetMemoryLockedClocks(card),
    ):
        nvml.time.advance(0.7)
        change()
    nvml.time.advance(0.7)


@pytest.mark.parametrize(
    "signal", [Constant(400.0), WAVE, Staircase(low_w=60.0, high_w=400.0, step_s=0.06, seed=7)]
)
def test_c_and_python_agree_after_changes(fake_nvml: Play, signal: Square) -> None:
    """Power, energy and time of a step agree in C and Python over eight changes of settings."""
    nvml, card = start(fake_nvml, ideal(signal, model=MODEL))
    change_often(nvml, card)
    for t_s in (0.01 * step for step in range(-20, 700)):
        unix_s = EPOCH_S + t_s
        assert nvml.c_power_w(0, unix_s) == pytest.approx(nvml.power_w(0, unix_s), rel=1e-9)
        energy_j = nvml.c_energy_j(0, EPOCH_S - 0.5, unix_s)
        assert energy_j == pytest.approx(nvml.energy_j(0, EPOCH_S - 0.5, unix_s), abs=1e-4)
    settings = Settings(limit_w=200.0, load=0.8)
    assert nvml.step_s() == pytest.approx(nvml.scenario.cards[0].step_s(settings), rel=1e-9)


def test_the_filter_of_sensors_continues_over_changes(fake_nvml: Play) -> None:
    """The filtered power equals a filter that is integrated in steps of 0.1 ms."""
    nvml, card = start(fake_nvml, ideal(WAVE, model=MODEL))
    change_often(nvml, card)
    response_s, step_s = 0.05, 1e-4
    level_w = nvml.c_filtered_w(0, EPOCH_S, response_s)
    scenario, changes = nvml.scenario, nvml.changes()
    for step in range(20_000):
        power_w = scenario.power_w(0, EPOCH_S + (step + 0.5) * step_s, changes)
        level_w += step_s / response_s * (power_w - level_w)
    assert nvml.c_filtered_w(0, EPOCH_S + 2.0, response_s) == pytest.approx(level_w, abs=0.5)


def test_a_limit_lowers_power_and_clock_and_is_shown(fake_nvml: Play) -> None:
    """A busy card draws exactly its limit, at a lower clock, and reports that power limits it."""
    nvml, card = start(fake_nvml, ideal(Constant(400.0), model=MODEL))
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 400_000
    assert pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM) == 1980
    nvml.time.advance(1.0)
    pynvml.nvmlDeviceSetPowerManagementLimit(card, 250_000)
    nvml.time.advance(2.0)
    assert pynvml.nvmlDeviceGetPowerUsage(card) == 250_000
    x = (190.0 / 340.0) ** (1 / 2.8)
    assert pynvml.nvmlDeviceGetClockInfo(card, pynvml.NVML_CLOCK_SM) == round(1980 * x)
    assert pynvml.nvmlDeviceGetCurrentClocksEventReasons(card) == 4
    (limited,) = pynvml.nvmlDeviceGetFieldValues(card, [74])
    assert limited.value.ullVal == pytest.approx(2e9, abs=1e3)


def test_a_locked_clock_slows_less_than_it_saves(fake_nvml: Play) -> None:
    """At 75 % of the clock, power falls to (1 - 0.75^2.8) of its part above static."""
    nvml, card = start(fake_nvml, ideal(Constant(400.0), model=MODEL))
    free_s = nvml.step_s()
    pynvml.nvmlDeviceSetGpuLockedClocks(card, 1485, 1485)
    assert pynvml.nvmlDeviceGetPowerUsage(card) == pytest.approx(
        (60 + 340 * 0.75**2.8) * 1e3, abs=1
    )
    assert free_s == pytest.approx(0.1)
    assert 1.0 < nvml.step_s() / free_s < 1.0 / 0.75


def test_more_memory_time_makes_a_low_clock_cheaper() -> None:
    """The step of a training that waits for memory is slowed down less by a low clock."""
    slow = Settings(limit_w=700.0, clock_mhz=990.0)
    ratios = [
        ideal(WAVE, model=replace(MODEL, memory_time_ratio=ratio)).step_s(slow) / 0.1
        for ratio in (0.0, 0.8, 2.0)
    ]
    assert ratios[0] == pytest.approx(2.0)
    assert all(one > other for one, other in itertools.pairwise(ratios))


def test_supported_clocks_are_listed(fake_nvml: Play) -> None:
    """The clocks are those of the ladder, highest first, for each memory clock of the card."""
    _, card = start(fake_nvml, ideal(WAVE, low_memory_clock_mhz=1300.0))
    assert pynvml.nvmlDeviceGetSupportedMemoryClocks(card) == [2600, 1300]
    assert pynvml.nvmlDeviceGetSupportedGraphicsClocks(card, 2600) == list(range(1980, 344, -15))
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetSupportedGraphicsClocks(card, 999)


SETTERS = (
    lambda card: pynvml.nvmlDeviceSetPowerManagementLimit(card, 300_000),
    lambda card: pynvml.nvmlDeviceSetGpuLockedClocks(card, 1005, 1005),
    pynvml.nvmlDeviceResetGpuLockedClocks,
    lambda card: pynvml.nvmlDeviceSetMemoryLockedClocks(card, 2600, 2600),
    pynvml.nvmlDeviceResetMemoryLockedClocks,
)
INSTANCE = Mig(uuid="MIG-0", gpu_instance=1)


@pytest.mark.parametrize(
    ("card", "code"),
    [
        (ideal(WAVE, can_write=False), pynvml.NVML_ERROR_NO_PERMISSION),
        (ideal(WAVE, mig_instances=(INSTANCE,)), pynvml.NVML_ERROR_NOT_SUPPORTED),
    ],
)
def test_refused_calls_change_nothing_and_are_logged(
    fake_nvml: Play, card: Card, code: int
) -> None:
    """Without permission or under MIG each setter fails, leaves the limit, and is in the log."""
    nvml, handle = start(fake_nvml, card)
    for setter in SETTERS:
        with pytest.raises(pynvml.NVMLError) as caught:
            setter(handle)
        assert caught.value.value == code
    assert [call.result for call in nvml.setter_calls()] == [code] * 5
    assert pynvml.nvmlDeviceGetPowerManagementLimit(handle) == 700_000


def test_root_may_write(fake_nvml: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a process with FAKE_NVML_ROOT, the setters of a card succeed that refuse all others."""
    monkeypatch.setenv("FAKE_NVML_ROOT", "1")
    _, card = start(fake_nvml, ideal(WAVE, can_write=False))
    pynvml.nvmlDeviceSetPowerManagementLimit(card, 300_000)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(card) == 300_000


def test_cards_before_volta_lock_no_clocks(fake_nvml: Play) -> None:
    """A P100 takes a power limit and refuses locked clocks."""
    _, card = start(fake_nvml, pascal(WAVE))
    pynvml.nvmlDeviceSetPowerManagementLimit(card, 150_000)
    with pytest.raises(pynvml.NVMLError_NotSupported):
        pynvml.nvmlDeviceSetGpuLockedClocks(card, 1005, 1005)


def test_setters_may_fail_while_getters_answer(fake_nvml: Play) -> None:
    """A fault of the setters leaves the getters alone; the failed call is logged."""
    fault = Fault(group="setters", kind="error", start_s=0.0, value=999)
    nvml, card = start(fake_nvml, a100(WAVE), faults=(fault,))
    with pytest.raises(pynvml.NVMLError_Unknown):
        pynvml.nvmlDeviceSetPowerManagementLimit(card, 300_000)
    assert pynvml.nvmlDeviceGetPowerManagementLimit(card) == 400_000
    assert [call.result for call in nvml.setter_calls()] == [999]


CHILD = """
import pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(1)
print(pynvml.nvmlDeviceGetPowerManagementLimit(card))
pynvml.nvmlDeviceSetPowerManagementLimit(card, 250_000)
"""


def test_processes_share_the_settings_of_a_card(fake_nvml: Play) -> None:
    """A child sees our limit, we see its limit and its call, and the other card has its own."""
    nvml, first = start(fake_nvml, ideal(WAVE), ideal(WAVE))
    second = pynvml.nvmlDeviceGetHandleByIndex(1)
    pynvml.nvmlDeviceSetPowerManagementLimit(second, 350_000)
    child = subprocess.run(
        [sys.executable, "-c", CHILD], env=nvml.env(), capture_output=True, text=True, check=True
    )
    assert child.stdout == "350000\n"
    assert pynvml.nvmlDeviceGetPowerManagementLimit(second) == 250_000
    assert pynvml.nvmlDeviceGetPowerManagementLimit(first) == 700_000
    ours, theirs = nvml.setter_calls()
    assert ours.pid != theirs.pid
    assert [(one.card, one.call, one.value) for one in (ours, theirs)] == [
        (1, "limit", 350.0),
        (1, "limit", 250.0),
    ]


def test_a_scenario_that_is_written_again_starts_afresh(fake_nvml: Play) -> None:
    """Changes belong to one writing of a scenario file."""
    nvml, card = start(fake_nvml, ideal(WAVE))
    pynvml.nvmlDeviceSetPowerManagementLimit(card, 350_000)
    path = nvml.scenario.write(nvml.path)
    assert not path.with_name(path.name + ".changes").exists()
