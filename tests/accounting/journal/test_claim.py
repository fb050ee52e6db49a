"""Processes of one launch share an attempt; other processes begin their own."""

import threading
from pathlib import Path

import pytest

from energy_callbacks.accounting.journal import claim
from energy_callbacks.accounting.journal.claim import claim_attempt
from energy_callbacks.accounting.journal.journal import path_for


def test_the_first_start_is_attempt_one_and_the_next_one_two(tmp_path: Path) -> None:
    """Each start of the same rank begins an attempt, with the run id if it is known."""
    first = claim_attempt(tmp_path, "host", 0, None)
    path_for(tmp_path, first[0], "host", 0).touch()
    second = claim_attempt(tmp_path, "host", 0, first[1])
    path_for(tmp_path, second[0], "host", 0).touch()
    assert first[0] == 1
    assert second == (2, first[1])
    assert claim_attempt(tmp_path, "host", 0, None)[0] == 3
    assert len(first[1]) == 12


def test_ranks_share_an_attempt(tmp_path: Path) -> None:
    """Ranks of two hosts that start one after another find the same attempt and run."""
    ranks = [("a", 0), ("a", 1), ("b", 2), ("b", 3)]
    for attempt in (1, 2):
        claims = []
        for host, rank in ranks:
            claims.append(claim_attempt(tmp_path, host, rank, None, f"port {attempt}"))
            path_for(tmp_path, attempt, host, rank).touch()
        assert {number for number, _ in claims} == {attempt}
        assert len({run_id for _, run_id in claims}) == 1


def test_ranks_that_race_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight ranks that start at once find the same attempt and run."""
    monkeypatch.setattr(claim, "_MARKER_LOOKS", 3000)  # the first one may be slow
    for repeat in range(20):
        claims = _claims_at_once(tmp_path / str(repeat), launch="4 127.0.0.1 29500")
        assert {number for number, _ in claims} == {1}
        assert len({run_id for _, run_id in claims}) == 1
        left = [path.name for path in (tmp_path / str(repeat) / "attempts" / "1").iterdir()]
        assert left == ["run_id"]


def test_trainings_that_race_keep_apart(tmp_path: Path) -> None:
    """Eight trainings that start at once in one folder begin eight attempts of eight runs."""
    claims = _claims_at_once(tmp_path, launch=None)
    assert sorted(number for number, _ in claims) == list(range(1, 9))
    assert len({run_id for _, run_id in claims}) == 8


def _claims_at_once(folder: Path, launch: str | None) -> list[tuple[int, str]]:
    barrier, claims = threading.Barrier(8), []

    def start(rank: int) -> None:
        barrier.wait()
        claims.append(claim_attempt(folder, "host", rank, None, launch))

    threads = [threading.Thread(target=start, args=(rank,)) for rank in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(claims) == 8
    return claims


def test_a_resume_on_another_host_is_another_attempt(tmp_path: Path) -> None:
    """A new pod without a journal in the first attempt does not join it."""
    _, run_id = claim_attempt(tmp_path, "pod-a", 0, None)
    path_for(tmp_path, 1, "pod-a", 0).touch()
    assert claim_attempt(tmp_path, "pod-b", 0, run_id) == (2, run_id)
    assert claim_attempt(tmp_path, "pod-c", 0, None, "2 127.0.0.1 29500")[0] == 3


@pytest.mark.parametrize("content", [b"", b"a1b2c3", b"\xff\0"])
def test_a_damaged_marker_is_that_of_another_launch(tmp_path: Path, content: bytes) -> None:
    """After a power failure, the marker may be empty; the next launch begins an attempt."""
    marker = tmp_path / "attempts" / "1" / "run_id"
    marker.parent.mkdir(parents=True)
    marker.write_bytes(content)
    assert claim_attempt(tmp_path, "host", 0, None, "2 127.0.0.1 29500")[0] == 2
