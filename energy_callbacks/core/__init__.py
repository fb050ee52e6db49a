"""What every other package may use: records, units, settings, errors, small tools."""
