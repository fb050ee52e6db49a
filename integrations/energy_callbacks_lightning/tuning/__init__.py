"""The batch-size search for a Lightning Trainer."""
