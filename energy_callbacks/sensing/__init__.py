"""Sensors, the threads that read them, and the energy between two moments."""
