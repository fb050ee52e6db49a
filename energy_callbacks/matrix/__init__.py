"""Parameters times repeats of any command, each measured, in an order that treats all equally.

::

    toml_file.load(FILE.toml) ─▶ MatrixPlan ─▶ MatrixJobs in ABBA order ─▶ an engine
    each job: energy-callbacks run -- COMMAND ─▶ results folder ─▶ summary: which is cheapest
"""
