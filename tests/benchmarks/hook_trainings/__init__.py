"""Trainings on the CPU whose hooks ``tests.benchmarks.hooks`` measures: one file per framework.

Each file has a function ``train(times, *, steps, every)``. It adds our callback to a real training
of ``steps`` optimizer steps, and wraps every method of ours that the framework calls, and the
methods of loggers, with ``times.wrap``. A row is due at every ``every``-th step; with ``None``, the
callback has its default and the framework logs its loss at every tenth step.

PyTorch computes on one thread, as in ``overhead_parts.trainings``. With two threads on two busy
cores, a step takes 37 ms instead of 2 to 6 ms.
"""
