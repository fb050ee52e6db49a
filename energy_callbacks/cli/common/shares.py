"""Parses shares, such as ``5%``, in command-line arguments."""

import argparse


def share(word: str) -> float:
    """Return the share that is written in a word, such as ``5%`` or ``0.05``.

    Raises:
        ArgumentTypeError: if the share is negative, or 10 (1000 %) or more.
        ValueError: if the word is not a number.

    >>> share("5%"), share("5 %"), share("0.05")
    (0.05, 0.05, 0.05)
    """
    number = word.strip()
    share = float(number.removesuffix("%")) / 100.0 if number.endswith("%") else float(number)
    if not 0.0 <= share < 10.0:
        raise argparse.ArgumentTypeError(f"got {word}; give a share such as 5% or 0.05")
    return share
