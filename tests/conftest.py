"""Runs the lanes of ``tests/lanes.py`` in parallel, each in a process of pytest-xdist."""

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.garbage import Freezer
from tests.integrations.no_tensorflow import keep_tensorflow_out
from tests.lanes import FRAMEWORKS, LANES, ONE_THREAD, Lane, lanes_of
from tests.scheduling import LaneScheduling
from tests.trackers.fixtures import SERVER_KEY
from tests.trackers.mlflow_server import MlflowServer, is_installed

# No deadline for examples of Hypothesis: on a busy machine they take longer.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# Before the conftest files of folders import NumPy, which starts its threads then. They would wait
# for each other actively, which takes several times the processor time.
os.environ.update(ONE_THREAD)

TESTS = Path(__file__).parent
# A worker that dies is replaced; the new one runs the remaining tests of the lane.
_RESTARTS = "4"
_SERVER = pytest.StashKey[MlflowServer]()


def pytest_configure(config: pytest.Config) -> None:
    """Start a process for each lane, or choose the lane of this process."""
    _listen_to_ctrl_c()
    _write_bytecode()
    config.pluginmanager.register(Freezer())
    if hasattr(config, "workerinput"):
        _run_in(config, _by_name(config.workerinput["lane"]))
    elif not config.option.collectonly:
        lanes = _asked_for(config)
        if len(lanes) > 1:
            _distribute(config, lanes)
        elif lanes:
            config.option.dist, config.option.tx = "no", []  # -n is about lanes
            os.environ.update(lanes[0].environment)
            _run_in(config, lanes[0])


def _listen_to_ctrl_c() -> None:
    """Handle SIGINT also if the parent ignores it, as shells do for background jobs."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _write_bytecode() -> None:
    """Write bytecode also where images switch it off: tests start many interpreters."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def _asked_for(config: pytest.Config) -> list[Lane]:
    """Return the lanes with tests that the command line names; for Keras, those of its backend."""
    found = {lane.name for argument in config.args for lane in lanes_of(_path(argument))}
    backend = os.environ.get("KERAS_BACKEND")
    chosen = [lane for lane in LANES if lane.name in found and lane.is_installed]
    return [
        one
        for one in chosen
        if backend is None or one.environment.get("KERAS_BACKEND", backend) == backend
    ]


def _path(argument: str) -> Path:
    """Return the path of a test that the command line names."""
    return Path(argument.partition("::")[0])


def _distribute(config: pytest.Config, lanes: list[Lane]) -> None:
    """Make pytest-xdist start the lanes."""
    if config.option.usepdb or config.option.numprocesses == 0:
        names = ", ".join(lane.name for lane in lanes)
        raise pytest.UsageError(
            f"these tests are in {len(lanes)} lanes ({names}), each in a process of its own; "
            "without processes, name tests of one lane only (tests/lanes.py)"
        )
    config.option.dist = "each"
    config.option.tx = [_spec(lane) for lane in lanes]
    config.option.maxworkerrestart = config.option.maxworkerrestart or _RESTARTS
    if is_installed() and any(lane in FRAMEWORKS for lane in lanes):
        folder = tempfile.TemporaryDirectory(prefix="mlflow-")
        config.add_cleanup(folder.cleanup)
        config.stash[_SERVER] = server = MlflowServer(Path(folder.name))
        config.add_cleanup(server.stop)


def _spec(lane: Lane) -> str:
    """Return the specification with which execnet starts the process of a lane."""
    environment = [f"env:{name}={value}" for name, value in lane.environment.items()]
    return "//".join(("popen", f"id={lane.name}", f"lane={lane.name}", *environment))


def _by_name(name: str) -> Lane:
    return next(lane for lane in LANES if lane.name == name)


def _run_in(config: pytest.Config, lane: Lane) -> None:
    """Run the tests of one lane that the command line names."""
    # pytest calls no ``pytest_ignore_collect`` for paths on the command line.
    config.args = [argument for argument in config.args if lane in lanes_of(_path(argument))]
    if not lane.has_tensorflow:
        keep_tensorflow_out()
    config.pluginmanager.register(OneLane(lane))


def pytest_configure_node(node: Any) -> None:
    """Tell a worker its lane, which other lanes run, and the address of the MLflow server."""
    node.workerinput["lane"] = node.gateway.spec.lane
    node.workerinput["lanes"] = [lane.name for lane in _asked_for(node.config)]
    if (server := node.config.stash.get(_SERVER, None)) is not None:
        node.workerinput[SERVER_KEY] = server.url


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LaneScheduling:
    """Schedule ``-n`` lanes at a time; by default two more than there are processors.

    About two lanes are always waiting: for processes of their tests, for devices, for real time.
    """
    lanes = [lane.name for lane in _asked_for(config)]
    at_a_time = config.option.numprocesses or len(os.sched_getaffinity(0)) + 2
    return LaneScheduling(config, lanes, at_a_time)


class OneLane:
    """Ignores the tests of other lanes."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Ignore other lanes (``tests/lanes.py``) and doctests of modules that tests share."""
        is_shared = collection_path.is_relative_to(TESTS) and collection_path.suffix == ".py"
        is_test = not is_shared or collection_path.name.startswith("test_")
        return None if is_test and self._lane in lanes_of(collection_path) else True
