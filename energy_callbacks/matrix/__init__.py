"""Test matrices: measures a command for all combinations of parameters, with repeats.

The jobs run in an order in which a drift over time affects all combinations equally.

::

    toml_file.load(FILE.toml) ─▶ MatrixPlan ─▶ MatrixJobs in ABBA order ─▶ an engine
    each job: energy-callbacks run -- COMMAND ─▶ results folder ─▶ summary: which is cheapest
"""
