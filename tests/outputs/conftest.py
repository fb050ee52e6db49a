"""Fixtures for all tests of outputs."""

from tests.integrations.no_tensorflow import keep_tensorflow_out

keep_tensorflow_out()
