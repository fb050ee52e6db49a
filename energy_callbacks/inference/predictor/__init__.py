"""Predicts throughput, latency, power and utilisation of configurations that were not measured.

``physics.py`` has the physical model with its priors, ``residual.py`` its error, and
``predictor.py`` the two together. ``held_out.py`` measures errors on windows that were left out.
"""

from energy_callbacks.inference.predictor.predictor import Predictor as Predictor
