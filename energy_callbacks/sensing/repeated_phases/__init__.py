"""Estimates the energy of phases that repeat, from all their repetitions together (`phase_fit`)."""
