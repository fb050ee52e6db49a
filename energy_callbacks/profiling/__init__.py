"""Profilers: where in the step, in which kernels and on which lines the joules went."""
