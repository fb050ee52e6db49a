"""Figures beside the loss: energy, emissions, throughput, forecasts and budgets."""
