"""What readings mean: phases, steps, figures, carbon, and the journal that keeps them."""
