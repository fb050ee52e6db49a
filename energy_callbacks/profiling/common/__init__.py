"""What several profilers use."""
