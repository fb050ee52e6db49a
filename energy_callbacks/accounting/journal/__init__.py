"""The journal of a run, and the facts about the process in its header and events."""
