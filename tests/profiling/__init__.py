"""Tests of profilers."""
