"""Computes the values of a report from journals."""
