"""Trainings with two ranks on one host, and what the report of the first rank says of each."""

import os
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks.report.model.schema import EnergyReport
from tests.fake_nvml import Constant, Scenario, h200
from tests.fake_nvml.library import env
from tests.integrations.processes import Running, Script, Scripts, wait

# W, of the card with this index.
POWERS_W = (300.0, 200.0)


def start_ranks(
    scripts: Scripts,
    module: str,
    folder: Path,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    different: Iterable[Mapping[str, str]] = ({"LOCAL_RANK": "0"}, {"LOCAL_RANK": "1"}),
) -> list[tuple[Script, Running]]:
    """Two processes with the variables that launchers such as torchrun set.

    Args:
        scripts: start them.
        module: of the script.
        folder: in which each rank has a folder to run in.
        arguments: of both.
        environment: of both.
        different: what each rank has for itself.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
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
    """Wait for both; what they said where one failed."""
    statuses = [wait(running) for _, running in started]
    assert statuses == [0, 0], "\n".join(script.output for script, _ in started)


def assert_both_ranks_finished(report: EnergyReport) -> None:
    """One attempt of two ranks that have both finished, and 800 samples that were seen once."""
    assert {attempt.attempt for attempt in report.attempts} == {1}
    assert {(a.rank, a.status) for a in report.attempts} == {(0, "finished"), (1, "finished")}
    assert report.throughput.samples == 800
    assert report.throughput.steps == 100
    assert [(rank.rank, rank.steps, rank.samples) for rank in report.ranks] == [
        (0, 100, 400),
        (1, 100, 400),
    ]


def assert_both_ranks_stopped_early(report: EnergyReport) -> None:
    """A budget of 0.3 Wh has ended a training of 100 steps, normally and at one step."""
    assert {attempt.status for attempt in report.attempts} == {"finished"}
    [steps] = {attempt.steps for attempt in report.attempts}
    assert 0 < steps < 80  # a busy machine takes seconds for a few
    assert "budget_used_up" in [warning.code for warning in report.warnings]
    # Loading of modules takes time after the start, and ends of trainings too.
    assert report.energy.total.energy_j is not None
    assert report.energy.total.energy_j > 0.3 * 3600.0


def assert_host_counted_once(report: EnergyReport) -> None:
    """Only the first rank speaks for CPU and RAM."""
    metered = [device.key for device in report.devices if device.scope == "host"]
    assert metered
    assert len(metered) == len(set(metered))
    assert report.energy.host.energy_j is not None


def fake_cards(folder: Path) -> dict[str, str]:
    """The environment of processes that see cards of known powers, in real time."""
    scenario = Scenario(cards=tuple(h200(Constant(power_w)) for power_w in POWERS_W))
    folder.mkdir(parents=True, exist_ok=True)
    return env(scenario.write(folder / "cards.txt"))


def cards_of(kind: str | None, local_rank: int) -> Mapping[str, Any]:
    """The setting of a rank on a CPU, as on GPUs: the first one reads the cards of all."""
    if kind is None:
        return {}
    two = [0, 1] if local_rank == 0 else [1]
    return {"devices": [0] if kind == "shared" else two}


def assert_each_card_counted_once(report: EnergyReport, cards: str) -> None:
    """The total is the sum of the physical cards, each its watts times the time of its owner."""
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


def assert_the_second_rank_died(report: EnergyReport) -> None:
    """Its journal is in the report, which says that nobody heard of it again."""
    dead = report.attempts[1]
    assert (dead.rank, dead.status) == (1, "cut off")
    assert 0 < dead.steps <= 60
    (said,) = (one.message for one in report.warnings if "Rank 1 of 2" in one.message)
    assert "ended without a word after" in said
    assert [rank.gpus for rank in report.ranks] == [("gpu0",), ("gpu1",)]
    assert report.ranks[1].gpu.energy_j is not None


def pretend_host(name: str) -> None:
    """From here on this process runs on a machine of this name."""
    real = os.uname()
    os.uname = lambda: os.uname_result((real[0], name, *real[2:]))  # type: ignore[assignment]


def leave() -> None:
    """Disconnect this process from its ranks, where it is connected.

    Else one of gloo's threads may free a tensor after the interpreter has ended, and the process
    ends with an abort, without us too (https://github.com/pytorch/pytorch/pull/179291).
    """
    ranks = sys.modules["torch"].distributed
    if ranks.is_initialized():
        ranks.destroy_process_group()
