"""The profilers of the frameworks, behind one protocol."""
