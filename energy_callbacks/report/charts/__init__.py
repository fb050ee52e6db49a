"""The charts of a report, drawn with Matplotlib or described for Plotly."""
