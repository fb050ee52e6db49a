"""Small well-known models on small data: how fast, how large and how hungry each is here."""
