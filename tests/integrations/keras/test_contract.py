"""Keras keeps the contract of all frameworks, on each of its backends."""

import pytest

from tests.integrations.contract import Contract
from tests.integrations.keras.lab import KerasLab


@pytest.mark.every_backend
class TestKeras(Contract):
    lab = KerasLab()
