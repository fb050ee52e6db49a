"""Records of a report, their JSON, and the formatting of their numbers."""
