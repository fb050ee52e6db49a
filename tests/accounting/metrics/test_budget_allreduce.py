"""Sums over the processes of a PyTorch training; tests of the frameworks use two processes."""

from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from energy_callbacks.accounting.metrics.budget_allreduce import BudgetAllreduce

ranks = pytest.importorskip("torch.distributed")


@pytest.fixture
def connect() -> Iterator[Callable[[], None]]:
    """Initialises a process group with this process only."""

    def connect() -> None:
        if ranks.is_initialized():
            ranks.destroy_process_group()
        store = ranks.HashStore()
        ranks.init_process_group("gloo", store=store, rank=0, world_size=1)

    yield connect
    if ranks.is_initialized():
        ranks.destroy_process_group()


def test_a_process_that_is_alone_needs_no_others() -> None:
    """It gets its own number at once, without PyTorch."""
    assert BudgetAllreduce()(3.0) == 3.0


def test_a_sum_arrives_a_call_later(connect: Callable[[], None]) -> None:
    """A call returns the sum of the previous call, and 0 at first."""
    connect()
    vote = BudgetAllreduce()
    vote.begin(world_size=2)
    assert [vote(number) for number in (3.0, 4.0, 5.0)] == [0.0, 3.0, 4.0]


def test_the_next_training_has_a_group_of_its_own(connect: Callable[[], None]) -> None:
    """After a new initialisation, the group of the training before cannot be used."""
    vote = BudgetAllreduce()
    for _ in range(2):
        connect()
        vote.begin(world_size=2)
        with mock.patch.object(ranks, "new_group", wraps=ranks.new_group) as new_group:
            assert [vote(number) for number in (3.0, 4.0)] == [0.0, 3.0]
        assert new_group.call_count == 1


def test_processes_that_are_not_connected() -> None:
    """The call raises an error with the reason."""
    vote = BudgetAllreduce()
    vote.begin(world_size=2)
    with pytest.raises(RuntimeError, match="does not connect"):
        vote(1.0)
