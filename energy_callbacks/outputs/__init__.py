"""Outputs, which receive figures during training; one module per output."""
