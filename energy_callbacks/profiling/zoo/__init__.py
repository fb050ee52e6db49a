"""Trains small, well-known models on small data, to measure their speed, memory and energy."""
