"""What readings mean for a run: phases, steps, figures, emissions, and the journal."""
