"""LaTeX table, methods paragraph and BibTeX entries of a training, for papers."""
