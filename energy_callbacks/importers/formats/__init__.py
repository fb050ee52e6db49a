"""Log formats: each module reads one format and implements ``importers.protocol.Importer``."""
