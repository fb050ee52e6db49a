"""Sensors: one file per sensor family."""
