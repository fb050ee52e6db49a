"""One file per log format; each implements ``importers.protocol.Importer``."""
