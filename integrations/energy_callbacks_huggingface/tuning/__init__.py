"""The batch-size search for a Hugging Face Trainer."""
