"""Tests that run on machines of all vendors: the same training has the same report."""
