"""Tests that every family of sensors in files must pass.

A family needs a ``Case``: a file beside this one that describes its tree, and a line in ``cases``.
"""
