"""The batch-size search for a Keras model."""
