"""Renders a report as HTML, text, terminal output, model card and CSV."""
