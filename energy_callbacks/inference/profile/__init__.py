"""Measures configurations of a GPU: several processes, each with a share of the GPU (MPS).

``local_bench.py`` measures one configuration with real processes; ``sweeps.py`` lists
configurations, and ``run.py`` measures them one after the other. ``cleaner.py`` ends everything
that a profile has started.
"""
