"""The contract: tests that run with every framework, of what users can rely on.

Each framework implements a lab (see ``lab.py``) and defines a test class::

    class TestLightning(Contract):
        lab = LightningLab()

Names and docstrings of the tests appear in the table of ``docs/frameworks.md``. Tests that cannot
run with a framework are listed in ``reasons.py`` with the reason.
"""

from pathlib import Path

import pytest

from tests.integrations.contract.beside import BesideContract
from tests.integrations.contract.board import BoardContract
from tests.integrations.contract.counts import CountsContract
from tests.integrations.contract.endings import EndingsContract
from tests.integrations.contract.faults import FaultsContract
from tests.integrations.contract.harmless import HarmlessContract
from tests.integrations.contract.lab import Bench, Lab, SharedTrainings
from tests.integrations.contract.loggers import LoggersContract
from tests.integrations.contract.power import PowerContract
from tests.integrations.contract.profiles import ProfilesContract
from tests.integrations.contract.reasons import REASONS
from tests.integrations.contract.reports import ReportsContract
from tests.integrations.contract.rows import RowsContract
from tests.integrations.contract.running import RunningContract
from tests.integrations.contract.stages import StagesContract
from tests.integrations.contract.terminated import TerminatedContract

PARTS = (
    RowsContract,
    BoardContract,
    CountsContract,
    EndingsContract,
    RunningContract,
    TerminatedContract,
    StagesContract,
    HarmlessContract,
    LoggersContract,
    BesideContract,
    FaultsContract,
    ReportsContract,
    ProfilesContract,
    PowerContract,
)


class Contract(*PARTS):
    """All tests of the contract, run with the lab of one framework."""

    lab: Lab

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, tmp_path_factory: pytest.TempPathFactory) -> SharedTrainings:
        """Return a cache of trainings that tests read but do not change."""
        return SharedTrainings(cls.lab, tmp_path_factory.mktemp("shared"))

    @pytest.fixture
    def bench(
        self, tmp_path: Path, request: pytest.FixtureRequest, shared: SharedTrainings
    ) -> Bench:
        """Return the lab in an empty folder; skip the test if the framework cannot run it."""
        reason = REASONS[self.lab.name].get(request.function.__name__)
        if reason is not None:
            pytest.skip(reason)
        return Bench(self.lab, tmp_path, shared=shared)
