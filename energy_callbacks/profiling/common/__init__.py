"""Modules that several profilers use."""
