"""Plays the devices of a case."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_nvml.signals import Signal
from tests.sensing.sources.conformance.case import Case, Lab


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Lab]]:
    """``play(case, signal, ...)``: the devices of a case with these powers."""
    labs: list[Lab] = []

    def make(case: Case, *signals: Signal, start_j: float = 50_000.0) -> Lab:
        labs.append(case.lab(tmp_path, monkeypatch, signals or (case.load,), start_j))
        return labs[-1]

    yield make
    for lab in labs:
        lab.close()
