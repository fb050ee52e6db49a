"""Projects energy, emissions and money of a job to many jobs a day."""
