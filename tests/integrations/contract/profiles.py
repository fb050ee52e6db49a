"""The contract: profilers receive all events, and their errors do not affect the training."""

import logging
from typing import Any

import pytest

from tests.integrations.contract.lab import Bench, Plan


class Heard:
    """A profiler that records its calls and raises an error in the call named ``fails_in``."""

    def __init__(self, fails_in: str = "") -> None:
        self.told: list[str] = []
        self._fails_in = fails_in

    def _hear(self, name: str) -> None:
        self.told.append(name)
        if name == self._fails_in:
            raise RuntimeError("a bug of the profiler")

    def start(self, meter: Any) -> None:
        self._hear("start")

    def mark(self, name: str, t_s: float) -> None:
        self._hear(name)

    def step(self, t_s: float) -> None:
        self._hear("step")

    def stop(self) -> None:
        self._hear("stop")


class ProfilesContract:
    """Events reported to profilers, and errors in profilers."""

    def test_profilers_receive_every_step(self, bench: Bench) -> None:
        """Between start and stop, a profiler receives all steps and the phases of the training."""
        heard = Heard()
        bench.fit(Plan(validation_samples=20), bench.lab.callback(profilers=[heard]))
        assert heard.told[0] == "start"
        assert heard.told[-1] == "stop"
        assert heard.told.count("step") == 20
        phases = [name for name in heard.told if name.startswith("phase:")]
        assert "phase:train" in phases
        assert "phase:idle" in phases

    def test_a_second_fit_starts_profilers_again(self, bench: Bench) -> None:
        """Each attempt is profiled separately."""
        heard = Heard()
        training = bench.training(Plan(epochs=1), bench.lab.callback(profilers=[heard]))
        training.fit()
        training.fit()
        assert heard.told.count("start") == heard.told.count("stop") == 2
        assert heard.told.count("step") == 20

    @pytest.mark.parametrize("where", ["start", "step", "stop"])
    def test_only_the_profiler_that_fails_stops(
        self, bench: Bench, caplog: pytest.LogCaptureFixture, where: str
    ) -> None:
        """There is one warning; the training and its figures are the same as without it."""
        ours = bench.lab.callback(profilers=[Heard(fails_in=where)])
        with caplog.at_level(logging.WARNING):
            bench.fit(Plan(epochs=1), ours)
        assert sum("Heard ends here" in record.message for record in caplog.records) == 1
        assert ours.report().run.status == "finished"
        assert ours.report().throughput.steps == 10
