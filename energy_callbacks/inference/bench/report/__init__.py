"""What the runs of a benchmark have shown: figures, summary, tables and pages."""
