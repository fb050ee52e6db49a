"""Phases of the step: time by events or marks, energy by regression on what the sensor said."""

from energy_callbacks.profiling.phases.step_phases import StepPhases

__all__ = ["StepPhases"]
