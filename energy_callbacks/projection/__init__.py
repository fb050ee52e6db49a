"""Projects energy, emissions and cost of one job to many jobs a day."""
