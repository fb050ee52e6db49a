"""What the frameworks in this process and their drivers say about devices and steps."""
