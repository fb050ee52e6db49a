"""Sensors whose values are in files of Linux; ``families.py`` lists all families."""
