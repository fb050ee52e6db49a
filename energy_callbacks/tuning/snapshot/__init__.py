"""The state of a training before trials, restored afterwards."""
