"""One window: the time and the energy of a step at one setting."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Time and energy of a step, measured in one window at one setting.

    Attributes:
        value: the setting, in the unit of its knob.
        step_s: duration of a step, s; of several ranks the longest.
        step_j: energy of a step, J; of several cards the sum.
        step_s_stderr: standard error of ``step_s``, s.
        step_j_stderr: standard error of ``step_j``, J.
    """

    value: float
    step_s: float
    step_j: float
    step_s_stderr: float = 0.0
    step_j_stderr: float = 0.0

    @property
    def power_w(self) -> float:
        """Mean power, W."""
        return self.step_j / self.step_s
