"""Plans inference under a power cap: measures configurations of a GPU, predicts others, and plans.

``records.py`` has what all parts share. ``profile`` measures, ``predictor`` is fitted to what was
measured, ``planner`` searches the best configuration, and ``simulated`` is a GPU in software.
"""
