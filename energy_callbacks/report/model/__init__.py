"""The records of a report, their JSON, and how numbers are formatted."""
