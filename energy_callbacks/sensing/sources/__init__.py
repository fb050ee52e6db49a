"""One file per sensor; ``discover`` finds those of this machine."""
