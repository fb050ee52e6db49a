"""Helpers for trainings with two ranks on one host, and assertions on their reports."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report import build
from energy_callbacks.report.model.schema import EnergyReport
from energy_callbacks.report_process import meter_reports
from tests.fake_nvml import Constant, Scenario, h200
from tests.fake_nvml.library import env
from tests.integrations.ports import reserved_port
from tests.integrations.processes import Running, Script, Scripts, wait

# Power of each fake card in W, by card index.
POWERS_W = (300.0, 200.0)


def start_ranks(
    scripts: Scripts,
    module: str,
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    different: Iterable[Mapping[str, str]] = ({"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1"}),
) -> list[tuple[Script, Running]]:
    """Start two processes with the environment variables that launchers such as torchrun set.

    Args:
        scripts: starts the processes.
        module: module of the script.
        folder: folder in which each rank ``N`` gets a working directory ``rankN``.
        arguments: command line arguments of both ranks.
        environment: environment variables of both ranks.
        different: additional environment variables of each rank.
    """
    port = str(reserved_port())
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}
    shared |= {"NODE_RANK": "0", "GLOO_SOCKET_IFNAME": "lo"}
    started = []
    for rank, own in enumerate(different):
        (folder / f"rank{rank}").mkdir(parents=True)
        variables = dict(environment or {}) | shared | {"RANK": str(rank)} | dict(own)
        script = Script(
            module=module,
            folder=folder / f"rank{rank}",
            arguments=arguments,
            environment=variables,
        )
        started.append((script, scripts.start(script)))
    return started


def assert_ranks_end_well(started: list[tuple[Script, Running]]) -> None:
    """Assert that both ranks exit with status 0; shows their output if one fails."""
    statuses = [wait(running) for _, running in started]
    assert statuses == [0, 0], "\n".join(script.output for script, _ in started)


def assert_both_ranks_finished(report: EnergyReport) -> None:
    """Assert that both ranks finished the first attempt and that 800 samples were counted once."""
    assert {attempt.attempt for attempt in report.attempts} == {1}
    assert {(a.rank, a.status) for a in report.attempts} == {(0, "finished"), (1, "finished")}
    assert report.throughput.samples == 800
    assert report.throughput.steps == 100
    assert [(rank.rank, rank.steps, rank.samples) for rank in report.ranks] == [
        (0, 100, 400),
        (1, 100, 400),
    ]


def assert_both_ranks_stopped_early(report: EnergyReport) -> None:
    """Assert that a budget of 0.3 Wh ended both ranks normally at the same step, before step 80."""
    assert {attempt.status for attempt in report.attempts} == {"finished"}
    [steps] = {attempt.steps for attempt in report.attempts}
    assert 0 < steps < 80  # on a busy machine a few steps take seconds
    assert "budget_used_up" in [warning.code for warning in report.warnings]
    # Measurement also covers imports before the first step and the end of the training.
    assert report.energy.total.energy_j is not None
    assert report.energy.total.energy_j > 0.3 * 3600.0


def assert_host_counted_once(report: EnergyReport) -> None:
    """Assert that each device of the host, such as CPU and RAM, appears only once."""
    metered = [device.key for device in report.devices if device.scope == "host"]
    assert metered
    assert len(metered) == len(set(metered))
    assert report.energy.host.energy_j is not None


def fake_cards(folder: Path) -> dict[str, str]:
    """Return environment variables that give a process fake cards of known power, in real time."""
    scenario = Scenario(cards=tuple(h200(Constant(power_w)) for power_w in POWERS_W))
    folder.mkdir(parents=True, exist_ok=True)
    return env(scenario.write(folder / "cards.txt"))


def cards_of(kind: str | None, local_rank: int) -> Mapping[str, Any]:
    """Return the setting ``devices`` of a rank that runs on a CPU but measures fake cards.

    As on real GPUs, the first rank reads the cards of all ranks.

    Args:
        kind: ``"shared"`` for one card, ``"two"`` for one card per rank; ``None`` for no cards.
        local_rank: index of the rank on its host.
    """
    if kind is None:
        return {}
    two = [0, 1] if local_rank == 0 else [1]
    return {"devices": [0] if kind == "shared" else two}


def assert_each_card_counted_once(report: EnergyReport, cards: str) -> None:
    """Assert that the total is the sum over cards, each with its power times the measured time."""
    powers_w = POWERS_W[:1] if cards == "shared" else POWERS_W
    found = {device.key: device for device in report.devices if device.kind == "gpu"}
    assert list(found) == [f"gpu{index}" for index in range(len(powers_w))]
    duration_s = next(one.duration_s for one in report.attempts if one.rank == 0)
    for device, power_w in zip(found.values(), powers_w, strict=True):
        assert device.energy.coverage > 0.95
        truth_j = power_w * duration_s * device.energy.coverage
        assert device.energy.energy_j == pytest.approx(truth_j, abs=device.energy.error_j)
    by_device_j = sum(device.energy.energy_j or 0.0 for device in found.values())
    assert report.energy.gpu.energy_j == pytest.approx(by_device_j, rel=1e-9)
    by_rank_j = sum(attempt.energy.energy_j or 0.0 for attempt in report.attempts)
    assert report.energy.total.energy_j == pytest.approx(by_rank_j, rel=1e-9)
    own = [("gpu0",), ("gpu0",)] if cards == "shared" else [("gpu0",), ("gpu1",)]
    assert [rank.gpus for rank in report.ranks] == own
    assert [rank.shares_gpus for rank in report.ranks] == [cards == "shared"] * 2


def assert_rows_count_both_ranks(
    report: EnergyReport, j_per_step: Iterable[float], j_per_sample: Iterable[float]
) -> None:
    """Assert that a step of both ranks has 8 samples, in each row of a curve and in the report."""
    found = report.efficiency.gpu
    assert found.j_per_step is not None
    assert found.j_per_sample is not None
    steps_j = [*j_per_step, found.j_per_step.value_j]
    samples_j = [*j_per_sample, found.j_per_sample.value_j]
    assert len(steps_j) > 1
    assert [8.0 * value_j for value_j in samples_j] == pytest.approx(steps_j, rel=1e-5)


def assert_the_second_rank_died(report: EnergyReport) -> None:
    """Assert that the report includes rank 1's journal and says that it stopped unexpectedly."""
    dead = report.attempts[1]
    assert (dead.rank, dead.status) == (1, "cut off")
    assert 0 < dead.steps <= 60
    (said,) = (one.message for one in report.warnings if "Rank 1 of 2" in one.message)
    assert "stopped unexpectedly after" in said
    assert [rank.gpus for rank in report.ranks] == [("gpu0",), ("gpu1",)]
    assert report.ranks[1].gpu.energy_j is not None


def wait_for_slow_ranks() -> None:
    """Make the first rank wait for the others until they end; five seconds may be too short."""
    meter_reports._RANKS_S = 300.0


def die(folder: Path, rank: int) -> None:
    """Kill this process (-9) when its journal, in a run folder, has steps and energy of it."""
    end_s = time.monotonic() + 60.0
    while time.monotonic() < end_s:
        own = (one for one in build(folder).ranks if one.rank == rank)
        if any(one.steps and one.gpu.energy_j for one in own):
            break
        time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def pretend_host(name: str) -> None:
    """Make this process report another host name from now on."""
    socket.gethostname = lambda: name


def leave() -> None:
    """Disconnect this process from the process group of torch, if it is connected.

    Otherwise a thread of gloo may free a tensor after the interpreter has ended, which aborts the
    process, even without our callback (https://github.com/pytorch/pytorch/pull/179291).
    """
    ranks = sys.modules["torch"].distributed
    if ranks.is_initialized():
        ranks.destroy_process_group()
