"""Sensors that only a command of the system can read: its output becomes readings."""
