"""The tests of each lane run in a process of their own, some lanes at a time."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.lanes import FRAMEWORKS, LANES, ROOT, lanes_of
from tests.scheduling import LaneScheduling


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("tests/sensing/test_schedule.py", ["core"]),
        ("tests/cli", ["commands"]),
        ("tests/report/charts", ["reports"]),
        ("tests/integrations/lightning/test_contract.py", ["lightning"]),
        ("tests/integrations/keras", ["keras-jax", "keras-tensorflow", "keras-torch"]),
        ("tests/integrations/test_table.py", ["core"]),
        ("tests/integrations", ["core", "commands", *(lane.name for lane in FRAMEWORKS)]),
        ("tests/release", ["release"]),
        ("tests", [lane.name for lane in LANES]),
        ("energy_callbacks", ["core"]),
    ],
)
def test_the_folder_decides(path: str, names: list[str]) -> None:
    """A folder above those of several lanes selects all of them."""
    assert [lane.name for lane in lanes_of(ROOT / path)] == names


def test_folders_of_lanes_are_there() -> None:
    """Every folder of a lane exists."""
    for lane in LANES:
        for folder in lane.folders:
            assert (ROOT / folder).exists(), folder


@dataclass(eq=False)
class Node:
    """A process as pytest-xdist presents it to a scheduler."""

    lane: str
    told: list[int] | None = None
    is_told_to_end: bool = False
    gateway: Any = field(init=False)

    def __post_init__(self) -> None:
        self.gateway = SimpleNamespace(spec=SimpleNamespace(lane=self.lane))

    def send_runtest_some(self, tests: list[int]) -> None:
        self.told = list(tests)

    def shutdown(self) -> None:
        self.is_told_to_end = True


class Run:
    """A run of pytest with two tests in each lane."""

    def __init__(self, *lanes: str, at_a_time: int) -> None:
        session = SimpleNamespace(testscollected=0)
        plugins = SimpleNamespace(getplugin=lambda name: session)
        config: Any = SimpleNamespace(pluginmanager=plugins)
        self.scheduling = LaneScheduling(config, lanes, at_a_time)
        self.nodes = {lane: self.begin(lane) for lane in lanes}
        self.scheduling.schedule()

    def begin(self, lane: str, tests: tuple[str, ...] = ("a", "b")) -> Node:
        """Start a process that has collected tests."""
        node = Node(lane)
        self.scheduling.add_node(node)
        self.scheduling.add_node_collection(node, tests)
        return node

    def end(self, lane: str, *ended: int) -> str | None:
        """End a process after some tests; return the test during which it died."""
        node = self.nodes[lane]
        for test in ended:
            self.scheduling.mark_test_complete(node, test)
        return self.scheduling.remove_node(node)

    def running(self) -> set[str]:
        """Return the lanes that were told to run tests."""
        return {lane for lane, node in self.nodes.items() if node.told is not None}


def test_some_lanes_run_at_a_time() -> None:
    """The next lane begins when one has ended, in their order."""
    run = Run("one", "two", "three", at_a_time=2)
    assert run.running() == {"one", "two"}
    assert run.nodes["one"].told == [0, 1]
    assert run.nodes["one"].is_told_to_end
    assert run.end("two", 0, 1) is None
    assert run.running() == {"one", "two", "three"}
    assert not run.scheduling.tests_finished
    run.end("one", 0, 1)
    run.end("three", 0, 1)
    assert run.scheduling.tests_finished


def test_a_process_that_replaces_one_that_died_runs_the_rest() -> None:
    """The test during which it died is reported and not repeated."""
    run = Run("one", at_a_time=1)
    assert run.end("one") == "a"
    assert run.scheduling.has_pending
    run.nodes["one"] = run.begin("one")
    run.scheduling.schedule()
    assert run.nodes["one"].told == [1]
    run.end("one", 1)
    assert run.scheduling.tests_finished


def test_a_lane_without_tests_ends() -> None:
    """For example if ``-k`` selects tests of another lane only."""
    run = Run("one", at_a_time=1)
    empty = run.begin("empty", ())
    assert empty.is_told_to_end
    assert empty.told is None


def pytest_of(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


TWO_LANES = ("tests/core/test_units.py", "tests/matrix/test_toml_file.py")


def test_tests_of_two_lanes_run_in_two_processes() -> None:
    """Each runs its own tests only."""
    ended = pytest_of(*TWO_LANES, "-v")
    assert ended.returncode == 0, ended.stdout
    lines = [line for line in ended.stdout.splitlines() if " PASSED " in line]
    assert lines
    for line in lines:
        assert ("[core]" in line) == ("test_units.py" in line), line


def test_the_debugger_needs_one_lane() -> None:
    """It cannot work in several processes; pytest reports what to do."""
    ended = pytest_of(*TWO_LANES, "--pdb")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "name tests of one lane" in ended.stderr
