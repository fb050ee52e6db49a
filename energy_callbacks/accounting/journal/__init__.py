"""The journal file, and modules that collect the content of its header and its warnings."""
