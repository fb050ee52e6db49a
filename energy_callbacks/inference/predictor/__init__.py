"""Predicts throughput, latency, power and utilisation of configurations that were not measured.

``physics.py`` has the form with its priors, ``residual.py`` what it leaves, and ``predictor.py``
the two together. ``held_out.py`` measures errors on windows that were left out.
"""

from energy_callbacks.inference.predictor.predictor import Predictor as Predictor
