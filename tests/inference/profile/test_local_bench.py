"""Measuring with real processes: figures, failures that are rows, and settings of the GPU."""

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from energy_callbacks.cli import main
from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.inference.profile import sweeps
from energy_callbacks.inference.profile.gpu_settings import GpuSettings
from energy_callbacks.inference.profile.local_bench import LocalBench
from energy_callbacks.inference.profile.open_device import LocalDevice
from energy_callbacks.inference.profile.tenant_process import TenantFailed, TenantProcess
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Mode, Phase
from energy_callbacks.powercap.actuators import choose
from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE, all_files
from energy_callbacks.powercap.settings import Setting
from tests.core.waiting import until
from tests.fake_nvml import card_uuid
from tests.inference.profile.conftest import NO_BATCH, ROOT, SHORT, STEADY, Machine
from tests.powercap.safety.file_cards import AdminNvmlActuator

MODELS = "tests.inference.profile.models"
HOST = LocalDevice(uuid=None, name="CPU")


@pytest.fixture(autouse=True)
def _in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.fixture(scope="module")
def host() -> Iterator[LocalBench]:
    """Provide a bench of the CPU; its models take little time to load."""
    before = Path.cwd()
    os.chdir(ROOT)
    with LocalBench(HOST, load_s=30.0) as bench:
        yield bench
    os.chdir(before)


def measured(
    bench: LocalBench,
    one: Configuration,
    window_s: float = 0.5,
    phase: Phase = "anchor",
    mode: Mode = "infer",
) -> MeasuredWindow:
    """Return the row of a short window."""
    return bench.measure(one, window_s=window_s, warmup_s=0.1, phase=phase, mode=mode)


def settled(
    bench: LocalBench,
    one: Configuration,
    *,
    is_settled: Callable[[MeasuredWindow], bool] = lambda _: True,
    mode: Mode = "infer",
) -> MeasuredWindow:
    """Return the first row in which the tenants were not without a processor for too long."""
    rows: list[MeasuredWindow] = []

    def is_whole() -> bool:
        rows.append(measured(bench, one, mode=mode))
        return NO_BATCH not in rows[-1].note and is_settled(rows[-1])

    until(is_whole)
    return rows[-1]


def test_two_tenants(host: LocalBench) -> None:
    """Throughput and latency are those of the models: 4 and 8 ms for two and four samples."""
    row = settled(
        host,
        sweeps.single([STEADY], [50.0, 25.0], [2, 4]),
        is_settled=lambda row: min(row.tenant_throughputs_per_s) > 150.0,
    )
    assert row.status == "ok"
    assert row.source == "measured"
    first, second = row.tenant_throughputs_per_s
    # Sleeping and waiting for a processor take longer than asked for, never shorter.
    assert 150.0 < first < 500.0
    assert 150.0 < second < 500.0
    assert row.throughput_per_s == first + second
    assert row.latency_p50_ms is not None
    assert row.latency_p50_ms >= 4.0
    assert row.latency_p99_ms is not None
    assert row.latency_p99_ms >= 8.0
    assert row.energy_j is not None
    assert row.power_mean_w is not None
    assert math.isclose(row.energy_j, 0.5 * row.power_mean_w)


def test_processes_are_used_again(host: LocalBench) -> None:
    """For other batches and models a tenant of the same share goes on; others end."""
    both = sweeps.single([STEADY], [50.0, 25.0], [1])
    host._tenants.load(both.tenants, "infer")
    first, second = host._tenants._processes
    again = sweeps.single([f"{MODELS}:printing"], [25.0], [8])
    for _ in range(2):
        host._tenants.load(again.tenants, "infer")
        assert host._tenants._processes == [second]
    assert first._process.poll() == 0
    host._tenants.end()


@pytest.mark.parametrize(
    ("model", "status", "note"),
    [
        ("hungry", "oom", "MemoryError: too many samples"),
        ("killed", "error", r"SIGKILL"),
        ("missing", "error", "has no attribute 'missing'"),
        ("garrulous", "error", "ValueError: one two"),
    ],
)
def test_a_failure_is_a_row(host: LocalBench, model: str, status: str, note: str) -> None:
    """Its status says why, its figures are unknown, and the next configuration is measured."""
    row = measured(host, sweeps.single([STEADY, f"{MODELS}:{model}"], [50.0], [1, 8]))
    assert row.status == status
    assert note in row.note
    assert row.throughput_per_s is row.power_mean_w is row.energy_j is None
    assert settled(host, sweeps.single([f"{MODELS}:printing"], [50.0], [1])).status == "ok"


def test_a_model_that_does_not_load(host: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a row with the status timeout, and its process is killed."""
    monkeypatch.setattr(host._tenants, "_load_s", 1.0)
    monkeypatch.setattr("energy_callbacks.inference.profile.tenant_process.END_S", 0.2)
    row = measured(host, sweeps.single([f"{MODELS}:frozen"], [50.0], [1]))
    assert (row.status, row.note) == ("timeout", "a tenant did not answer within 1 s")


def test_all_tenants_load_before_a_failure_is_reported(host: LocalBench) -> None:
    """So those that still load need not be killed."""
    models = [f"{MODELS}:{name}" for name in ("missing", "slow")]
    with pytest.raises(TenantFailed, match="missing"):
        host._tenants.load(sweeps.single(models, [50.0], [1]).tenants, "infer")
    _, slow = host._tenants._processes
    slow.send(do="report")
    assert "ends_s" in slow.answer(10.0)
    host._tenants.end()


def test_frozen_tenants_end_together(host: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time after which they are killed is not multiplied by their number."""
    monkeypatch.setattr(host._tenants, "_load_s", 1.0)
    one = sweeps.single([f"{MODELS}:frozen"], [10.0] * 4, [1])
    with pytest.raises(TenantFailed):
        host._tenants.load(one.tenants, "infer")
    monkeypatch.setattr("energy_callbacks.inference.profile.tenant_process.END_S", 0.5)
    waits_s: list[float] = []
    wait = TenantProcess.wait

    def noted(process: TenantProcess, timeout_s: float) -> None:
        waits_s.append(timeout_s)
        wait(process, timeout_s)

    monkeypatch.setattr(TenantProcess, "wait", noted)
    host._tenants.end()
    assert len(waits_s) == 4
    assert math.fsum(waits_s) <= 0.5


def test_waiting_tenants_and_none(host: LocalBench) -> None:
    """They have power and no throughput."""
    for phase, one in (
        ("static", sweeps.single([STEADY], [50.0], [1])),
        ("idle", Configuration(tenants=())),
    ):
        row = measured(host, one, phase=phase)  # type: ignore[arg-type]
        assert (row.status, row.phase) == ("ok", phase)
        assert row.throughput_per_s is row.latency_p50_ms is None
        assert row.energy_j is not None


def test_a_network_of_the_zoo(tmp_path: Path) -> None:
    """It runs inference and training on images of a folder on a CPU."""
    from PIL import Image

    for name in ("n01/images/a.JPEG", "n02/images/b.JPEG"):
        path = tmp_path / "train" / name
        path.parent.mkdir(parents=True)
        Image.fromarray(np.zeros((64, 64, 3), np.uint8)).save(path)
    (tmp_path / "wnids.txt").touch()
    one = sweeps.single(["zoo:simple_cnn"], [50.0], [4])
    with LocalBench(HOST, data=tmp_path) as bench:
        rows = [settled(bench, one, mode=mode) for mode in ("infer", "train")]
    assert [(row.status, row.mode, row.dataset) for row in rows] == [
        ("ok", "infer", "tiny-imagenet"),
        ("ok", "train", "tiny-imagenet"),
    ]
    # Half of the batches have not been interrupted by other programs.
    assert rows[0].latency_p50_ms < rows[1].latency_p50_ms  # type: ignore[operator]


def test_a_gpu(machine: Machine) -> None:
    """Power and energy are those of the card, and its clock and temperature are in the row."""
    with LocalBench(LocalDevice(uuid=card_uuid(0), name="NVIDIA H200")) as bench:
        row = measured(bench, sweeps.single([STEADY], [50.0], [1]), 2.5)
    assert row.status == "ok"
    assert row.power_mean_w == pytest.approx(300.0, rel=0.01)
    assert row.energy_j == pytest.approx(750.0, rel=0.01)
    assert row.power_p95_w == pytest.approx(300.0, rel=0.01)
    assert row.sm_mhz_measured is not None
    assert row.temperature_c is not None
    assert row.driver


def test_a_gpu_without_mps(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole GPU can be measured; a share cannot, and the message names the program."""
    monkeypatch.setenv("PATH", "/nowhere")
    with LocalBench(LocalDevice(uuid=card_uuid(0), name="NVIDIA H200")) as bench:
        assert settled(bench, sweeps.single([STEADY], [100.0], [1])).status == "ok"
        with pytest.raises(ActuatorError, match="nvidia-cuda-mps-control is not in PATH"):
            measured(bench, sweeps.single([STEADY], [50.0], [1]))


@pytest.fixture
def administrator(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AdminNvmlActuator:
    """Provide what may change the card, whose limit is 650 W."""
    for name, value in machine.nvml.env().items():
        monkeypatch.setenv(name, value)  # for the watchdog
    monkeypatch.setenv(FOLDER_VARIABLE, str(machine.folder / "state"))
    monkeypatch.setitem(choose._MADE_BY, "nvml", AdminNvmlActuator)
    one = AdminNvmlActuator()
    one.write(card_uuid(0), Setting(knob="limit", value=650.0))
    return one


PROFILE = ["powercap", "profile", "--gpu", "0", *SHORT]


def test_limits_are_restored(
    administrator: AdminNvmlActuator, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each window has its limit, and the value found, which is no default, is back at the end."""
    words = ["--limit-w", "500", "400", "--yes", "--json", "--out", str(machine.out)]
    code = main([*PROFILE, *words])
    rows = json.loads(capsys.readouterr().out)
    assert code == all(row["status"] != "ok" for row in rows)
    assert [row["configuration"]["power_limit_w"] for row in rows] == [500.0, 400.0]
    assert administrator.read(card_uuid(0), "limit") == 650.0
    assert not list(all_files(machine.folder / "state"))


def test_limits_are_restored_after_an_error(
    administrator: AdminNvmlActuator, machine: Machine
) -> None:
    """The value found is back if the profile ends by an exception."""
    uuid = card_uuid(0)
    settings = GpuSettings(administrator, uuid, allow_changes=True)
    one = replace(sweeps.single([STEADY], [50.0], [1]), power_limit_w=500.0)
    limits: list[float | None] = []

    def profile() -> None:
        device = LocalDevice(uuid=uuid, name="NVIDIA H200")
        with LocalBench(device, settings=settings) as bench:
            for each in (one, replace(one, power_limit_w=None), one):
                measured(bench, each, 0.1)
                limits.append(administrator.read(uuid, "limit"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        profile()
    assert [*limits, administrator.read(uuid, "limit")] == [500.0, 650.0, 500.0, 650.0]


def test_settings_are_checked_before_the_first_window(
    administrator: AdminNvmlActuator, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit that the card does not accept ends the profile before anything is measured."""
    words = ["--limit-w", "500", "5", "--yes", "--out", str(machine.out)]
    assert main([*PROFILE, *words]) == 2
    assert "limit must be between 200 and 700 W, got 5" in capsys.readouterr().err
    assert not machine.out.exists()


def test_nothing_is_changed_without_consent(
    administrator: AdminNvmlActuator, machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without ``--yes`` the profile ends; with ``--no-privilege`` and ``--dry-run`` it goes on."""
    words = ["--limit-w", "500", "--out", str(machine.out)]
    assert main([*PROFILE, *words]) == 2
    assert "add --yes to consent" in capsys.readouterr().err
    assert main([*PROFILE, *words, "--no-privilege"]) == 2
    assert "configurations left out, as they change settings: 1" in capsys.readouterr().err
    assert main([*PROFILE, *words, "--dry-run"]) == 0
    assert "privileged: set limit 500 W through nvml\n[1/1]" in capsys.readouterr().out
    assert administrator.read(card_uuid(0), "limit") == 650.0
    assert not machine.out.exists()
