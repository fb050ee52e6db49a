"""Test matrices: measure a command for all combinations of parameter values, with repeats.

Every second repeat runs in reverse order (A B, B A). With an even number of repeats, a linear drift
over time then affects all combinations equally.

::

    toml_file.load(FILE.toml) ─▶ MatrixPlan ─▶ MatrixJobs in ABBA order ─▶ an engine
    each job: energy-callbacks run -- COMMAND ─▶ results folder ─▶ summary: which is cheapest
"""
