"""Where numbers go while training: one file per output."""
