"""The results of a benchmark: figures, summary, tables and pages."""
