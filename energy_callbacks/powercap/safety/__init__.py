"""Changes settings of GPUs with consent only, and restores the values found, however a job ends."""
