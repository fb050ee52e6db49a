"""Figures logged during a training: energy, emissions, throughput, forecasts, budgets."""
