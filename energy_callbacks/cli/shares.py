"""Parses shares, such as ``5%``, in command-line arguments."""

import argparse


def share(word: str) -> float:
    """Parse a share, at least 0 and below 10, written with or without a per cent sign.

    >>> share("5%"), share("5 %"), share("0.05")
    (0.05, 0.05, 0.05)
    """
    number = word.strip()
    share = float(number.removesuffix("%")) / 100.0 if number.endswith("%") else float(number)
    if not 0.0 <= share < 10.0:
        raise argparse.ArgumentTypeError(f"got {word}; give a share such as 5% or 0.05")
    return share
