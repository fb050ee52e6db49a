"""GPUs that a run uses from its start, later, in a child process, or never."""

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.accounting.journal import journal
from energy_callbacks.report import EnergyReport, build, save
from energy_callbacks.sensing.frameworks import cuda_driver
from tests.fake_nvml import Card, FakeNvml, Process, Scenario, a100, fixtures, h200
from tests.fake_nvml.presets import numbered
from tests.fake_nvml.signals import Constant, Square
from tests.fake_nvml.test_fake_card import CardClock

fake_nvml = fixtures.fake_nvml
Play = Callable[..., FakeNvml]

RUN_S = 6.0
JOINS_S = 2.5
# Time between two looks at contexts and processes.
LOOK_S = 0.8


card = partial(numbered, h200)

THREE = (card(0), card(1), card(2))
UNLIKE = (card(0, name="Tesla T4"), card(1), card(2, name="NVIDIA L4"))
SPLIT = (card(0, parts=2), card(1))
ALL = tuple(str(one.uuid) for one in THREE)
PART, OTHER_PART = (mig.uuid for mig in SPLIT[0].mig_instances)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mask, the devices that CUDA lists under it, and the ordinals of those that are used.

    Attributes:
        uses: index of the card behind each ordinal in use.
    """

    mask: str | None = None
    order: str | None = None
    cards: tuple[Card, ...] = THREE
    shows: tuple[str, ...] = ALL
    ordinals: tuple[int, ...] = (0,)
    uses: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        return f"{self.mask} {self.order or ''} {self.ordinals}"


CASES = (
    Case(),
    Case(ordinals=(2,), uses=(2,)),
    Case(ordinals=(0, 2), uses=(0, 2)),
    Case(mask="1", shows=ALL[1:2], uses=(1,)),
    Case(mask="2,0", shows=(ALL[2], ALL[0]), ordinals=(1,), uses=(0,)),
    Case(mask="2,0", shows=(ALL[2], ALL[0]), ordinals=(0, 1), uses=(2, 0)),
    Case(mask="0,7,1", shows=ALL[:1]),
    Case(mask=ALL[2], shows=ALL[2:], uses=(2,)),
    Case(mask="GPU-1,GPU-0", shows=(ALL[1], ALL[0]), uses=(1,)),
    Case(mask=f"1,{ALL[2]}", shows=ALL[1:2], uses=(1,)),
    Case(order="PCI_BUS_ID", cards=UNLIKE, ordinals=(1,), uses=(1,)),
    Case(cards=UNLIKE, shows=(ALL[1], ALL[2], ALL[0]), uses=(1,)),
    Case(mask="1,0", cards=UNLIKE, shows=(ALL[2], ALL[1]), ordinals=(1,), uses=(1,)),
    Case(mask=OTHER_PART, cards=SPLIT, shows=(OTHER_PART,), uses=(0,)),
    Case(mask=f"{PART},{OTHER_PART}", cards=SPLIT, shows=(PART, OTHER_PART), ordinals=(0, 1)),
    Case(mask="1,0", cards=SPLIT, shows=(ALL[1], PART, OTHER_PART), ordinals=(0, 2), uses=(1, 0)),
)
EVERY_CASE = pytest.mark.parametrize("case", CASES, ids=str)


@pytest.fixture(autouse=True)
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """No masks, and no CUDA in this process."""
    for variable in ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "LOCAL_RANK"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(cuda_driver, "uuids", lambda: None)
    monkeypatch.setattr(cuda_driver, "active_ordinals", lambda: ())


@pytest.fixture(scope="module")
def child_pid() -> Iterator[int]:
    """The number of a child process."""
    child = subprocess.Popen(["sleep", "600"])
    yield child.pid
    child.kill()
    child.wait()


@dataclass(frozen=True, kw_only=True)
class Run:
    """A plain loop on a virtual clock, and its report."""

    meter: EnergyMeter
    zero_s: float
    report: EnergyReport

    def gpu_j(self) -> dict[str, float | None]:
        """Return the energy of each GPU in the report."""
        gpus = (device for device in self.report.devices if device.scope == "gpu")
        return {device.key: device.energy.energy_j for device in gpus}


def trained(folder: Path, clock: CardClock, duration_s: float = RUN_S, phase_s: float = 1e9) -> Run:
    """Train and validate in turn, ``phase_s`` seconds each."""
    zero_s = clock.monotonic_s()
    meter = EnergyMeter(config=EnergyConfig(report_dir=folder, country="DEU"), clock=clock)
    with meter:
        for step in range(round(duration_s / 0.1)):
            with meter.phase("validation" if step * 0.1 // phase_s % 2 else "train"):
                clock.advance(0.1)
                meter.step(samples=8)
    return Run(meter=meter, zero_s=zero_s, report=build(folder))


def contexts(
    monkeypatch: pytest.MonkeyPatch, clock: CardClock, shows: tuple[str, ...], **since_s: float
) -> None:
    """Let this process have a context on ordinal N from ``oN`` seconds on."""
    zero_s = clock.monotonic_s()

    def active() -> tuple[int, ...]:
        passed_s = clock.monotonic_s() - zero_s
        return tuple(int(key[1:]) for key, start_s in since_s.items() if passed_s >= start_s)

    listed = tuple(uuid[4:] for uuid in shows)
    monkeypatch.setattr(cuda_driver, "active_ordinals", active)
    monkeypatch.setattr(cuda_driver, "uuids", lambda: listed if active() else None)


def masked(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the mask of a case."""
    for key, value in (("VISIBLE_DEVICES", case.mask), ("DEVICE_ORDER", case.order)):
        if value is not None:
            monkeypatch.setenv(f"CUDA_{key}", value)


def assert_counted(run: Run, case: Case, since_s: float) -> None:
    """The cards in use count from the last look before ``since_s`` on, and no others."""
    found = run.gpu_j()
    assert found.keys() == {f"gpu{index}" for index in case.uses}
    for index in case.uses:
        energy_j, power_w = found[f"gpu{index}"], 100.0 * (index + 1)
        assert energy_j is not None
        used_s = run.report.run.duration_s - since_s
        earlier_s = LOOK_S if since_s else 0.0
        assert 0.99 * used_s < energy_j / power_w < 1.01 * (used_s + earlier_s)


@EVERY_CASE
@pytest.mark.parametrize("since_s", [0.0, JOINS_S], ids=["before", "after"])
def test_contexts_of_this_process(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: Case, since_s: float
) -> None:
    """Cards with a context at the start or later are measured, whatever the mask."""
    masked(case, monkeypatch)
    clock = CardClock(fake_nvml(Scenario(cards=case.cards)).time)
    since = {f"o{ordinal}": since_s for ordinal in case.ordinals}
    contexts(monkeypatch, clock, case.shows, **since)

    assert_counted(trained(tmp_path, clock), case, since_s)


@EVERY_CASE
def test_contexts_of_a_child(
    fake_nvml: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    child_pid: int,
    case: Case,
) -> None:
    """Cards that a child process begins to use are measured, whatever the mask."""
    masked(case, monkeypatch)
    process = Process(pid=child_pid, used_bytes=2**30, start_s=JOINS_S)
    cards = tuple(
        replace(one, processes=(process,)) if index in case.uses else one
        for index, one in enumerate(case.cards)
    )
    clock = CardClock(fake_nvml(Scenario(cards=cards)).time)

    assert_counted(trained(tmp_path, clock), case, JOINS_S)


# The driver of an H200 has buffered the power since the look before; that of an A100 has not.
@pytest.mark.parametrize(("preset", "unseen_s"), [(h200, 0.0), (a100, LOOK_S)])
def test_energy_of_a_gpu_that_joins(
    fake_nvml: Play,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    preset: Callable[..., Card],
    unseen_s: float,
) -> None:
    """Windows, phases and total hold the energy of a second GPU from when it joins on."""
    cards = (preset(Constant(100.0)), preset(Constant(300.0)), preset(Constant(500.0)))
    nvml = fake_nvml(Scenario(cards=cards))
    clock = CardClock(nvml.time)
    contexts(monkeypatch, clock, _uuids(cards), o0=0.0, o1=20.3)
    run = trained(tmp_path, clock, duration_s=40.0, phase_s=4.0)
    gpus = {device.key: device for device in run.report.devices if device.scope == "gpu"}
    by_phase = {phase.name: phase.gpu for phase in run.report.phases}

    def assert_window(start_s: float, end_s: float, truth_j: float, unseen_s: float = 0.0) -> None:
        found = run.meter.energy(run.zero_s + start_s, run.zero_s + end_s, "gpu")
        assert found.energy_j == pytest.approx(truth_j, rel=0.01, abs=unseen_s * 300.0)
        assert found.coverage >= 1.0 - 0.5 * unseen_s / (end_s - start_s) - 0.005

    # The newest look without a context on the second card is between 19.5 and 20.3 s.
    assert_window(10.0, 19.0, 900.0)
    assert_window(10.0, 30.0, 2000.0 + 300.0 * 10.0, LOOK_S)
    assert_window(25.0, 35.0, 4000.0)
    assert gpus.keys() == {"gpu0", "gpu1"}
    assert gpus["gpu1"].energy.coverage >= 1.0 - unseen_s / 20.0 - 0.005
    assert gpus["gpu1"].mean_power_w == pytest.approx(300.0, rel=0.01)
    # It joins in a validation from 20 to 24 s, or at the end of the training before.
    for name, used_s in (("train", 8.0), ("validation", 12.0)):
        truth_j = 100.0 * 20.0 + 300.0 * used_s
        assert by_phase[name].energy_j == pytest.approx(truth_j, abs=LOOK_S * 300.0)
        assert by_phase[name].coverage >= 1.0 - unseen_s / 20.0 - 0.005
    total_j = run.report.energy.gpu.energy_j
    assert total_j == pytest.approx(sum(one.energy_j or 0.0 for one in by_phase.values()))


def _uuids(cards: tuple[Card, ...]) -> tuple[str, ...]:
    return tuple(f"GPU-00000000-0000-4000-8000-{index:012d}" for index in range(len(cards)))


def test_short_phases_of_a_gpu_that_joins(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short phases with unlike power are fitted for a GPU that joins, as for any other GPU."""
    load = Square(low_w=100.0, high_w=400.0, period_s=1.0, duty=0.5, phase_s=0.0)
    cards = (h200(Constant(100.0)), h200(load))
    clock = CardClock(fake_nvml(Scenario(cards=cards)).time)
    contexts(monkeypatch, clock, _uuids(cards), o0=0.0, o1=20.3)
    report = trained(tmp_path, clock, duration_s=60.0, phase_s=0.5).report
    by_phase = {phase.name: phase.gpu for phase in report.phases}
    used_s = (60.0 - 20.0) / 2.0

    for name, power_w in (("train", 400.0), ("validation", 100.0)):
        found = by_phase[name]
        assert found.energy_j == pytest.approx(100.0 * 30.0 + power_w * used_s, rel=0.03)
        assert found.coverage == pytest.approx(1.0, abs=0.01)
    whole_j = sum(one.energy_j or 0.0 for one in by_phase.values())
    assert whole_j == pytest.approx(report.energy.gpu.energy_j)


def test_waits_of_a_gpu_that_joins(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waits for data before a GPU joins do not count as waits without readings of it."""
    cards = (h200(Constant(100.0)), h200(Constant(300.0)))
    clock = CardClock(fake_nvml(Scenario(cards=cards)).time)
    contexts(monkeypatch, clock, _uuids(cards), o0=0.0, o1=20.3)
    config = EnergyConfig(report_dir=tmp_path, country="DEU")
    with EnergyMeter(config=config, clock=clock) as meter, meter.phase("train"):
        for _ in range(40):
            meter.batch_done()
            clock.advance(0.5)
            meter.data_ready()
            clock.advance(0.5)
            meter.step(samples=8)
    [path] = tmp_path.glob("attempts/1/*.jsonl")
    [totals] = [line for line in journal.read(path) if line["type"] == "totals"]
    of_gpu = totals["data_wait"]["energy"]["gpu1"]

    assert of_gpu["coverage"] == pytest.approx(1.0, abs=0.03)
    assert of_gpu["energy_j"] == pytest.approx(0.5 * 300.0 * 20.0, rel=0.05)


def test_report_names_gpus_that_join_and_those_not_used(
    fake_nvml: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Page, text and JSON say since when a GPU is in use, and which visible GPU never was."""
    clock = CardClock(fake_nvml(Scenario(cards=THREE)).time)
    contexts(monkeypatch, clock, ALL, o0=0.0, o1=JOINS_S)
    report = trained(tmp_path, clock).report
    save(report, tmp_path)
    pages = [path.read_text() for path in tmp_path.glob("energy_report.*")]

    assert len(pages) == 3
    for page in pages:
        assert "its energy before that is not counted" in page
        assert "NVIDIA H200: visible to this run, but not used by it" in page
    assert [one.source for one in report.unavailable if one.source.startswith("gpu")] == ["gpu2"]
    assert not [one for one in report.warnings if "gpu" in one.message]


def test_run_without_a_gpu_in_use(fake_nvml: Play, tmp_path: Path) -> None:
    """No GPU counts if none is in use; the report lists the GPUs and warns."""
    report = trained(tmp_path, CardClock(fake_nvml(Scenario(cards=THREE)).time)).report

    assert report.energy.gpu.energy_j is None
    assert {"gpu0", "gpu1", "gpu2"} < {one.source for one in report.unavailable}
    (warning,) = [one for one in report.warnings if "no GPU was seen in use" in one.message]
    assert "devices='all'" in warning.fix
