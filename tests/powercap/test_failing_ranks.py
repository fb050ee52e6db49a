"""An unexpected error in one of two ranks ends the search on both hosts, in virtual time."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.accounting.journal.launch import TrainingProcess
from energy_callbacks.core import atomic_files
from energy_callbacks.powercap import PowerLimitOptimizer
from energy_callbacks.powercap.settings import Setting
from tests.powercap.scripted import FOUND_W, UUID, ScriptedCard, card, clock

__all__ = ["card", "clock"]

RANKS = (0, 1)
TRIAL_W = 0.9 * FOUND_W


class TwoHosts:
    """Two hosts with a rank and a card each, which train together.

    Args:
        first: the card of rank 0.
        folder: the run folder.
    """

    def __init__(self, first: ScriptedCard, folder: Path) -> None:
        self.clock, self.folder = first.clock, folder
        self.cards = (first, ScriptedCard(first.clock, uuid=UUID[:-1] + "2"))
        self.meters: list[EnergyMeter] = []

    def start(self, patch: pytest.MonkeyPatch) -> None:
        """Start the meters of both ranks."""
        patch.setenv("MASTER_PORT", "29500")
        self.meters += [self._started(rank, patch) for rank in RANKS]

    def _started(self, rank: int, patch: pytest.MonkeyPatch) -> EnergyMeter:
        own = self.cards[rank]
        optimizer = PowerLimitOptimizer(actuator=own, allow_changes=True)
        meter = EnergyMeter(
            sources=[own.source()],
            clock=self.clock,
            report_dir=self.folder,
            power_limit=optimizer,
        )
        patch.setattr(socket, "gethostname", lambda: f"host{rank}")
        meter._start(process=TrainingProcess(rank=rank, world_size=2))
        meter.enter("train")
        return meter

    def train(self, duration_s: float) -> None:
        """Make steps on both hosts; the slower card counts."""
        for one in self.cards:
            one.settle()
            one.is_training = True
        until_s = self.clock.monotonic_s() + duration_s
        while self.clock.monotonic_s() < until_s:
            self.clock.advance(max(one.step_s() for one in self.cards))
            for meter in self.meters:
                meter.step(samples=8)

    def train_until_changed(self) -> None:
        """Train until both cards are at a low limit of the search."""
        while max(self.limits_w) > TRIAL_W:
            self.train(0.2)

    @property
    def limits_w(self) -> list[float]:
        """The limits now."""
        return [one.limit_w for one in self.cards]

    def warnings(self, rank: int) -> list[str]:
        """The warnings about the power limit in the journal of a rank."""
        (path,) = self.folder.glob(f"attempts/1/*-{rank}.jsonl")
        lines: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
        return [one["message"] for one in lines if one.get("code") == "power_limit"]

    def assert_ended(self, problem: str) -> None:
        """Both cards are restored while the training goes on, and each rank warns once."""
        writes = [len(one.writes) for one in self.cards]
        self.train(60.0)
        assert [len(one.writes) for one in self.cards] == writes
        assert self.limits_w == [FOUND_W, FOUND_W]
        for rank in RANKS:
            (message,) = self.warnings(rank)
            assert message.startswith("The search for a power limit has ended: ")
            assert message.endswith(problem)
        for meter in self.meters:
            assert meter.is_running
            meter.stop()


@pytest.fixture
def hosts(
    card: ScriptedCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TwoHosts]:
    """Two hosts in the middle of a search."""
    both = TwoHosts(card, tmp_path / "run")
    both.start(monkeypatch)
    both.train_until_changed()
    yield both
    for meter in both.meters:
        meter.stop()


def break_once(card: ScriptedCard) -> None:
    """The next write to a card raises an exception that no actuator should raise."""
    write = card.write

    def broken(uuid: str, setting: Setting) -> None:
        card.write = write  # type: ignore[method-assign]
        raise RuntimeError("the driver is gone")

    card.write = broken  # type: ignore[method-assign]


@pytest.mark.parametrize("rank", RANKS)
def test_an_unexpected_error_ends_the_search_everywhere(hosts: TwoHosts, rank: int) -> None:
    """In the first rank, which decides, and in another one."""
    break_once(hosts.cards[rank])
    hosts.train(30.0)
    hosts.assert_ended("RuntimeError: the driver is gone")


@pytest.mark.parametrize("rank", RANKS)
def test_a_full_disk_ends_the_search_once_there_is_space(
    hosts: TwoHosts, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rank restores its own card at once, and tells the others as soon as it can."""
    write = atomic_files.write

    def refuse(path: Path, text: str) -> None:
        if path.name in (f"rank-{rank}.json", "decision.json" if rank == 0 else ""):
            raise OSError(28, "No space left on device")
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "write", refuse)
        hosts.train(30.0)
        assert hosts.limits_w[rank] == FOUND_W
        assert hosts.limits_w[1 - rank] < FOUND_W
    hosts.train(10.0)
    hosts.assert_ended("OSError: [Errno 28] No space left on device")


@pytest.mark.parametrize("rank", RANKS)
def test_a_rank_that_cannot_begin_ends_the_search(
    card: ScriptedCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """It cannot read its card; nothing is changed."""

    def broken(*_: object) -> None:
        raise RuntimeError("the driver is gone")

    hosts = TwoHosts(card, tmp_path / "run")
    monkeypatch.setattr(hosts.cards[rank], "range", broken)
    hosts.start(monkeypatch)
    hosts.train(30.0)
    hosts.assert_ended("RuntimeError: the driver is gone")
    assert [one.writes for one in hosts.cards] == [[], []]
