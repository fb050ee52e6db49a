"""What runs batches for a dispatcher: processes, or a simulated GPU in virtual time."""
