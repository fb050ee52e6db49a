"""Ways to change a setting of a GPU, such as its power limit, and to read it back."""
