"""Snapshots of a training's state, taken before trials and restored after each of them."""
