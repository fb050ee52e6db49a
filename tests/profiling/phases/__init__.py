"""Tests of the phases of a step."""
