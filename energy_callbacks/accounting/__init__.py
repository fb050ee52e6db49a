"""Turns readings into the results of a run: phases, steps, figures, emissions, journal."""
