"""Parses shares, such as ``5%``, in command-line arguments."""

import argparse


def share(word: str) -> float:
    """Return the share that is written in a word, such as ``5%`` or ``0.05``.

    Raises:
        ArgumentTypeError: if the word is not a number, or if the share is negative, or 10 (1000 %)
            or more.

    >>> share("5%"), share("5 %"), share("0.05")
    (0.05, 0.05, 0.05)
    """
    number = word.strip()
    try:
        value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < 10.0:
        raise argparse.ArgumentTypeError(f"must be a share such as 5% or 0.05, got {word!r}")
    return value
