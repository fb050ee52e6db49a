"""Sensors that fail during a training of Lightning."""
