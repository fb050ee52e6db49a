"""What the hardware says: sources, the threads that read them, and joules between two moments."""
