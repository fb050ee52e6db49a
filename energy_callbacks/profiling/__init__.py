"""Profilers: objects that look closer at a training, and put what they find into its report."""
