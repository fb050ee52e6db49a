"""From journals to the values of a report."""
