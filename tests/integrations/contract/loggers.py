"""The contract: loggers of the user that fail or are slow when the callback uses them.

A logger is the writer of the user's TensorBoard run. It behaves badly for the callback's rows only,
so that the framework's own rows are those of a training without the callback.
"""

import errno
import logging
from collections.abc import Callable, Sequence

import pytest
from tensorboard.compat.proto.summary_pb2 import Summary

from energy_callbacks.accounting.metrics.tags import OWN_TAGS
from tests.integrations.contract.lab import POWER_W, STEP_S, Bench, Plan, Training

ROW = "energy/gpu_wh"
ERRORS = {
    "unknown name": KeyError(ROW),
    "server gone": ConnectionError("the server is gone"),
    "disk full": OSError(errno.ENOSPC, "No space left on device"),
}
# Long enough that a logger that has failed is tried again.
LONG = Plan(epochs=3, step_s=4.0)


def watch_writer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, before: Callable[[str], object]
) -> None:
    """Call a function with the tag of each scalar before the user's logger writes it."""
    for owner, name in bench.lab.scalar_writers():
        monkeypatch.setattr(owner, name, _watched(getattr(owner, name), before))


def _watched(
    write: Callable[..., object], before: Callable[[str], object]
) -> Callable[..., object]:
    def watched(*args: object, **kwargs: object) -> object:
        for tag in _tags(args):
            before(tag)
        return write(*args, **kwargs)

    return watched


def _tags(args: Sequence[object]) -> list[str]:
    for one in args:
        if isinstance(one, str):
            return [one]
        if isinstance(one, bytes):
            return [value.tag for value in Summary.FromString(one).value]
    raise AssertionError(args)


def assert_same(training: Training, without_us: Training) -> None:
    """Assert that rows and weights are bit-identical to those without our callback."""
    found, wanted = training.rows(), without_us.rows()
    assert wanted
    assert {tag: found[tag] for tag in wanted} == wanted
    assert training.weights() == without_us.weights()


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    """Return the number of warnings that a logger cannot be written to."""
    records = [one for one in caplog.records if one.levelno == logging.WARNING]
    return sum("energy metrics cannot be written to" in one.message for one in records)


class LoggersContract:
    """Loggers of the user that fail, are slow, or are interrupted by a signal."""

    @pytest.mark.parametrize("kind", ERRORS)
    def test_a_logger_may_reject_energy_rows(
        self,
        bench: Bench,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
        kind: str,
    ) -> None:
        """The training continues with one warning; its rows are identical; there is a report."""
        without_us = bench.without_us(Plan(validation_samples=20))

        def refuse(tag: str) -> None:
            if tag in OWN_TAGS:
                raise ERRORS[kind]

        watch_writer(bench, monkeypatch, refuse)
        ours = bench.callback()
        assert_same(bench.fit(Plan(validation_samples=20), ours), without_us)
        assert warnings(caplog) == 1
        assert ours.report().run.status == "finished"
        assert ours.report().throughput.steps == 20

    def test_a_logger_that_works_again_gets_rows_again(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """After a server was gone for 45 s, rows are written again, without a new warning."""
        without_us = bench.without_us(LONG)
        back_s = bench.clock.monotonic_s() + 45.0

        def refuse(tag: str) -> None:
            if tag in OWN_TAGS and bench.clock.monotonic_s() < back_s:
                raise ERRORS["server gone"]

        watch_writer(bench, monkeypatch, refuse)
        training = bench.fit(LONG, bench.callback())
        assert_same(training, without_us)
        assert warnings(caplog) == 1
        assert training.rows()[ROW][-1][1] > 0.0

    def test_rows_of_the_framework_may_raise(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its exception ends the training, as without the callback."""

        def refuse(tag: str) -> None:
            if tag in bench.lab.loss_tags:
                raise ERRORS["server gone"]

        watch_writer(bench, monkeypatch, refuse)
        errors = []
        ours = bench.callback()
        for folder, callbacks in (("without", ()), ("with", (ours,))):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - frameworks wrap the error
                bench.fit(Plan(), *callbacks, folder=folder)
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1]
        bench.clock.advance(60.0)
        assert ours.report().run.status in ("failed", "interrupted")

    def test_a_logger_may_take_two_seconds(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows and weights are identical, and the energy of this time is in the report."""
        without_us = bench.without_us(Plan(validation_samples=20))
        own, loss = [], []

        def wait(tag: str) -> None:
            if tag == ROW or tag in bench.lab.loss_tags:
                (own if tag == ROW else loss).append(tag)
                bench.clock.advance(2.0)

        watch_writer(bench, monkeypatch, wait)
        ours = bench.callback()
        assert_same(bench.fit(Plan(validation_samples=20), ours), without_us)
        report = ours.report()
        assert own
        assert loss
        assert report.run.status == "finished"
        assert report.throughput.steps == 20
        assert report.run.duration_s >= 20 * STEP_S + 2.0 * (len(own) - 1)
        energy_j = POWER_W * report.run.duration_s
        assert report.energy.gpu.energy_j == pytest.approx(energy_j, rel=1e-3)
