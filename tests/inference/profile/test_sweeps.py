"""Lists of configurations, and what is left of them to measure."""

from dataclasses import replace

import pytest

from energy_callbacks.inference.profile import run, sweeps
from energy_callbacks.inference.profile.sweeps import Job
from energy_callbacks.inference.records import Configuration, MeasuredWindow, Status, needed


def shape(one: Configuration) -> tuple[int, float, int]:
    """Return number, share and batch of equal tenants."""
    first = one.tenants[0]
    return len(one.tenants), first.share_pct, first.batch


def test_an_anchor_sweep() -> None:
    """Shares are multiples of the step, tenants fit, and batches suit the share."""
    found = [shape(one) for one in sweeps.anchor(["resnet50"], share_step=25.0)]
    assert {share for _, share, _ in found} == {25.0, 50.0, 75.0, 100.0}
    assert {count for count, share, _ in found if share == 25.0} == {1, 2, 4}
    assert {count for count, share, _ in found if share == 75.0} == {1}
    assert {batch for _, share, batch in found if share == 50.0} == {64, 128, 256}
    assert len(set(found)) == len(found)
    assert all(count * share <= 100.0 for count, share, _ in found)


def test_given_batches_and_numbers_of_tenants() -> None:
    """They replace those of the sweep; numbers that do not fit are left out."""
    found = sweeps.anchor(["a", "b"], share_step=50.0, batches=[7], counts=[1, 2, 3])
    assert [shape(one) for one in found if one.tenants[0].model == "b"] == [
        (1, 50.0, 7),
        (2, 50.0, 7),
        (1, 100.0, 7),
    ]


def test_settings() -> None:
    """Each configuration is measured at each clock and limit, and a setting changes rarely."""
    both = sweeps.few(["a"], [8])[:2]
    found = sweeps.with_settings(both, sm_mhz=[1500.0, 1200.0], limits_w=[300.0])
    assert [one.sm_mhz for one in found] == [1500.0, 1500.0, 1200.0, 1200.0]
    assert needed(found[0]) == {"clock": 1500.0, "limit": 300.0}
    assert sweeps.with_settings(both) == both


def test_designed_points_are_far_from_each_other() -> None:
    """Their smallest distance is larger than that of the first points of the sweep."""
    every = sweeps.anchor(["a", "b"], share_step=10.0)
    chosen = sweeps.designed(every, 8)
    assert sorted(one.tenants[0].model for one in chosen) == ["a"] * 8 + ["b"] * 8
    assert sorted(chosen, key=every.index) == chosen  # processes are used again for a share
    assert len(set(chosen)) == 16
    shares = {share for _, share, _ in map(shape, chosen)}
    assert {10.0, 100.0} < shares
    assert len({batch for _, _, batch in map(shape, chosen)}) >= 4
    assert sweeps.designed(every[:3], 8) == sweeps.designed(every[:3], 3)


@pytest.mark.parametrize("shares", [[60.0, 50.0], [0.0], [50.0, 25.0, 25.0]])
def test_shares_that_do_not_fit(shares: list[float]) -> None:
    """Shares above 100 % in total, of zero, or of another number than the models are refused."""
    with pytest.raises(ValueError, match="must be"):
        sweeps.single(["a", "b"], shares, [4])


def test_what_is_left() -> None:
    """Out of memory is final; time-outs and crashes are measured again; repeats are counted."""
    ok, oom, timeout, error, new = (
        Job(configuration=sweeps.single(["a"], [50.0], [size]), phase="anchor", mode="infer")
        for size in (1, 2, 3, 4, 5)
    )
    statuses: list[tuple[Job, Status]] = [
        (ok, "ok"),
        (oom, "oom"),
        (timeout, "timeout"),
        (error, "error"),
    ]
    rows = [
        MeasuredWindow(configuration=job.configuration, source="measured", status=status)
        for job, status in statuses
    ]
    every = [ok, oom, timeout, error, new]
    assert run.missing(every, rows) == [timeout, error, new]
    assert run.missing([ok, ok, ok], rows) == [ok, ok]
    assert run.missing([replace(ok, phase="clock"), replace(ok, mode="train")], rows) != []
