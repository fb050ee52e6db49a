"""Finds settings in the environment and in files, and checks their values."""
