"""Keeps a GPU below a power cap while cap, load and temperature change.

``protocols.py`` has what a controller sees and answers; each controller has a module of its name.
"""
