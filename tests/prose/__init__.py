"""A linter for the prose of this package: its documentation and the strings that users read.

``python -m tests.prose`` applies the checks of proselint and those of ``rules.py``.
"""
