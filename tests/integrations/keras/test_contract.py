"""Keras keeps the contract of all frameworks, on each of its backends."""

from tests.integrations.contract import Contract
from tests.integrations.keras.lab import KerasLab


class TestKeras(Contract):
    lab = KerasLab()
