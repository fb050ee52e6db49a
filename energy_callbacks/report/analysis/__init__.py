"""Derives advice, warnings, emissions, cost and comparisons of two runs from reports."""
