"""Lightning keeps the contract of all frameworks."""

import pytest

pytest.importorskip("lightning")

from tests.integrations.contract import Contract
from tests.integrations.lightning.lab import LightningLab


class TestLightning(Contract):
    """See ``tests/integrations/contract``."""

    lab = LightningLab()
