"""The table of the phases of a step."""

from energy_callbacks.core import formatting
from energy_callbacks.report.model.profile_phases import StepPhase, StepPhases, rows


def test_phases_without_energy_have_no_share() -> None:
    """A device that reports 0 W: the sum of the phases is 0 J."""
    profile = StepPhases(
        device="gpu0",
        timed_by="host",
        steps=100,
        step_s=0.1,
        measured_j=0.0,
        split_j=0.0,
        lag_s=0.0,
        response_s=0.0,
        refusal=None,
        help=None,
        phases=(StepPhase(name="forward", time_s=0.1, energy_j=0.0, error_j=0.0),),
    )
    assert rows(profile)[0] == ("forward", "100 ms", "0 W", "0 ± 0", formatting.UNKNOWN)
