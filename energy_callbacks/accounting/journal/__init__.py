"""The journal of a run, and what its header and events record about the process."""
