"""Finds settings that are not passed as arguments: in the environment, then in a file."""
