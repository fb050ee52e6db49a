"""What follows from a report: advice, warnings, imbalance, comparisons of two runs."""
