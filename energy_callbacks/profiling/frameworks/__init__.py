"""Recorders that use the frameworks' own profilers; a framework is imported only if it is used."""
