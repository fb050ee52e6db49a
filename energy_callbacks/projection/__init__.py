"""What a job costs at scale: energy, emissions and money of many jobs a day."""
