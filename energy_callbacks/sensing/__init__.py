"""Reads sensors on threads, and computes the energy between two moments."""
