"""Two ranks under DDP: the same settings everywhere, and no card stays changed."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from energy_callbacks.powercap.safety.state_file import FOLDER_VARIABLE
from tests.core.waiting import until
from tests.fake_nvml import Constant, PowerModel, Scenario, h200
from tests.fake_nvml.changes import read_changes
from tests.fake_nvml.library import env
from tests.integrations.processes import Forking, Script, wait

pytest.importorskip("torch")
RANK = "tests.powercap.ranks_script"
# Modules that both ranks need at the start of a training.
IMPORTED = ("torch._dynamo", "energy_callbacks.powercap.coordinator")
FOUND_W = 700.0


@dataclass(frozen=True)
class Ranks:
    """Two ranks that have ended.

    Attributes:
        folder: their folder.
        statuses: exit status of each rank.
    """

    folder: Path
    statuses: list[int]

    def limits(self, card: int) -> list[float]:
        """All limits that were set on a card, in W."""
        changes = read_changes(self.folder / "cards.txt")
        assert all(change.call == "limit" and change.result == 0 for change in changes)
        return [change.value for change in changes if change.card == card]

    def recorded(self, rank: int) -> list[float]:
        """The limits in the journal of a rank, in W."""
        (path,) = self.folder.glob(f"run/attempts/1/*-{rank}.jsonl")
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [
            line["value"]
            for line in lines
            if line.get("kind") == "power_limit" and line["why"] != "restored"
        ]

    def assert_restored(self) -> None:
        """Both cards have the limit found; how soon, ``safety/test_ends.py`` tests."""
        until(lambda: [self.limits(card)[-1] for card in (0, 1)] == [FOUND_W, FOUND_W])


@pytest.fixture(scope="module")
def forking() -> Iterator[Forking]:
    """Starts ranks in forks of a process that has imported PyTorch."""
    one = Forking.importing(RANK, *IMPORTED)
    yield one
    one.close()


def trained(forking: Forking, folder: Path, dying: int) -> Ranks:
    """Run both ranks to their ends."""
    model = PowerModel(busy_w=650.0)
    cards = tuple(h200(Constant(650.0), model=model) for _ in range(2))
    shared = {
        FOLDER_VARIABLE: str(folder / "state"),
        "LOCAL_WORLD_SIZE": "2",
        "WORLD_SIZE": "2",
        "MASTER_PORT": "1",
    }
    shared = env(Scenario(cards=cards).write(folder / "cards.txt"), base=shared)
    ranks = []
    for rank in (0, 1):
        (folder / f"rank{rank}").mkdir()
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        script = Script(
            module=RANK,
            folder=folder / f"rank{rank}",
            arguments=(str(rank), str(folder), str(dying)),
            environment=shared | own,
        )
        ranks.append(forking.start(script))
    return Ranks(folder, [wait(rank) for rank in ranks])


def test_two_ranks_agree_on_every_setting(forking: Forking, tmp_path: Path) -> None:
    """Both cards have had the same limits, both journals have them, and the limit is restored."""
    ranks = trained(forking, tmp_path, dying=-1)
    assert ranks.statuses == [0, 0]
    ranks.assert_restored()
    assert ranks.limits(0) == ranks.limits(1)
    first, second = ranks.recorded(0), ranks.recorded(1)
    assert len(first) >= 2
    assert first[: len(second)] == second  # the end of the training may cut off the last one
    assert len(second) >= len(first) - 1


@pytest.mark.parametrize("dying", [0, 1])
def test_a_rank_that_dies_leaves_no_card_changed(
    forking: Forking, tmp_path: Path, dying: int
) -> None:
    """Killed by SIGKILL; the first rank is the one that has changed both cards."""
    ranks = trained(forking, tmp_path, dying)
    assert ranks.statuses[dying] == -9
    assert max(min(ranks.limits(card)) for card in (0, 1)) < FOUND_W
    ranks.assert_restored()
