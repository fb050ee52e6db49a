"""What touches a framework's own profiler; each framework is imported when it is in use."""
