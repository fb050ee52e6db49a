"""Records, units, settings, errors and small tools that every other package may use."""
