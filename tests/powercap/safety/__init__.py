"""Tests of what keeps settings of GPUs from staying changed."""
