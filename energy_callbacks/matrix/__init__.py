"""Parameters times repeats of any command, each measured, in an order that is fair to all.

::

    reading.load(FILE.toml) ─▶ Plan ─▶ Jobs in ABBA order ─▶ an engine (local, slurm, ray)
    each job: energy-callbacks run -- COMMAND ─▶ results folder ─▶ summary: which is cheapest
"""
