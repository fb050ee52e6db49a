"""Queries the frameworks in this process, and their drivers, about devices and steps."""
