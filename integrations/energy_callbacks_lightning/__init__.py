"""Lightning adapter."""
