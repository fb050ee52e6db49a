"""What holds of every training with two ranks on one host, from the report of its first rank."""

from energy_callbacks.report.schema import EnergyReport


def assert_both_ranks_finished(report: EnergyReport) -> None:
    """One attempt of two ranks that have both finished, and 800 samples that were seen once."""
    assert {attempt.attempt for attempt in report.attempts} == {1}
    assert {(a.rank, a.status) for a in report.attempts} == {(0, "finished"), (1, "finished")}
    assert report.throughput.samples == 800
    assert report.throughput.steps == 100


def assert_host_counted_once(report: EnergyReport) -> None:
    """Only the first rank speaks for CPU and RAM."""
    metered = [device.key for device in report.devices if device.scope == "host"]
    assert metered
    assert len(metered) == len(set(metered))
    assert report.energy.host.energy_j is not None
