"""Profiles the phases of a step: time by device events or the host clock, energy by regression."""

from energy_callbacks.profiling.phases.step_phases import StepPhases

__all__ = ["StepPhases"]
