"""One contract for all frameworks: what a user of any of them may rely on.

A framework keeps it with a lab (see ``lab.py``) and a class of its own::

    class TestLightning(Contract):
        lab = LightningLab()

Names of tests are names of situations in ``docs/frameworks.md``. A situation that a framework
cannot have stands with its reason in ``reasons.py``.
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
from tests.integrations.contract.profiles import ProfilesContract
from tests.integrations.contract.reasons import REASONS
from tests.integrations.contract.reports import ReportsContract
from tests.integrations.contract.rows import RowsContract
from tests.integrations.contract.terminated import TerminatedContract

PARTS = (
    RowsContract,
    BoardContract,
    CountsContract,
    EndingsContract,
    TerminatedContract,
    HarmlessContract,
    BesideContract,
    FaultsContract,
    ReportsContract,
    ProfilesContract,
)


class Contract(*PARTS):
    """All of it, over the lab of one framework."""

    lab: Lab

    @pytest.fixture(scope="class")
    @classmethod
    def shared(cls, tmp_path_factory: pytest.TempPathFactory) -> SharedTrainings:
        """Trainings that tests only look at."""
        return SharedTrainings(cls.lab, tmp_path_factory.mktemp("shared"))

    @pytest.fixture
    def bench(
        self, tmp_path: Path, request: pytest.FixtureRequest, shared: SharedTrainings
    ) -> Bench:
        """The lab in an empty folder, unless the situation cannot be had there."""
        reason = REASONS[self.lab.name].get(request.function.__name__)
        if reason is not None:
            pytest.skip(reason)
        return Bench(self.lab, tmp_path, shared=shared)
