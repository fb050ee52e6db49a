"""Assigns the lanes of ``tests/lanes.py`` to the processes of pytest-xdist."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest


@dataclass(eq=False)
class _Work:
    """The tests of one process.

    Attributes:
        tests: names of all tests that it has collected.
        pending: positions in ``tests`` of those that have not ended.
        is_started: whether it was told to run them.
    """

    tests: list[str] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    is_started: bool = False


class LaneScheduling:
    """Each process runs all tests that it has collected, and some processes run at a time.

    ``--dist each`` of pytest-xdist starts all processes at once; tests that wait for real processes
    and devices would then share a processor with many others. The methods are the interface that
    pytest-xdist expects of a scheduler (``xdist.scheduler.Scheduling``).

    Args:
        config: of the controller.
        lanes: names of the lanes, in the order in which they start; each has a process.
        at_a_time: how many of them run tests at the same time.
    """

    def __init__(self, config: pytest.Config, lanes: Sequence[str], at_a_time: int) -> None:
        self.config = config
        self._lanes = list(lanes)
        self._at_a_time = at_a_time
        self._work: dict[Any, _Work] = {}
        # By lane: the remaining tests of a process that died.
        self._left: dict[str, set[str]] = {}
        self._collected = 0

    @property
    def nodes(self) -> list[Any]:
        """Return the processes that exist."""
        return list(self._work)

    @property
    def collection_is_completed(self) -> bool:
        """Return whether every lane has collected its tests."""
        return self._collected >= len(self._lanes)

    @property
    def has_pending(self) -> bool:
        """Return whether any test has not ended."""
        return any(work.pending for work in self._work.values()) or bool(self._left)

    @property
    def tests_finished(self) -> bool:
        """Return whether every test has ended."""
        return self.collection_is_completed and not self.has_pending

    def add_node(self, node: Any) -> None:
        """Register a process, which will collect its tests."""
        self._work[node] = _Work()

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """Store the tests of a process; one that replaces another has fewer to run."""
        work = self._work[node]
        work.tests = list(collection)
        left = self._left.pop(node.gateway.spec.lane, None)
        work.pending = [i for i, name in enumerate(work.tests) if left is None or name in left]
        self._collected += left is None
        if not collection:
            node.shutdown()
        session = self.config.pluginmanager.getplugin("session")
        session.testscollected = sum(len(one.tests) for one in self._work.values())

    def schedule(self) -> None:
        """Start waiting processes, in the order of the lanes, up to the limit."""
        running = sum(work.is_started for work in self._work.values())
        waiting = [node for node, work in self._work.items() if work.tests and not work.is_started]
        waiting.sort(key=lambda node: self._lanes.index(node.gateway.spec.lane))
        for node in waiting[: max(self._at_a_time - running, 0)]:
            work = self._work[node]
            work.is_started = True
            node.send_runtest_some(work.pending)
            node.shutdown()  # when it has run them

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Remove a test that has ended."""
        self._work[node].pending.remove(item_index)

    def remove_node(self, node: Any) -> str | None:
        """Remove a process that has ended; return the test during which it died, if any."""
        work = self._work.pop(node)
        crashed = work.tests[work.pending.pop(0)] if work.pending else None
        if crashed is not None:
            self._left[node.gateway.spec.lane] = {work.tests[i] for i in work.pending}
        if self.collection_is_completed:
            self.schedule()
        return crashed

    def mark_test_pending(self, item: str) -> None:
        """Do nothing: no plugin here runs a test again."""
        raise NotImplementedError

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """Do nothing: no test is taken from a process."""
        raise NotImplementedError
