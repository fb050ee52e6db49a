"""The search for the best setting of a card: objectives, fitted curves, the next window."""
