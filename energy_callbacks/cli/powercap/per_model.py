"""Options with a value for all models, or one for each."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

_Value = TypeVar("_Value")
PER_MODEL: Final = "a value for all models, or MODEL=VALUE for each"


def by_model(
    option: str, words: list[str], models: tuple[str, ...], read: Callable[[str], _Value]
) -> Mapping[str, _Value]:
    """Return the value of each model; a word without a name is for all models without their own.

    Args:
        option: name of the option, for messages.
        words: its words.
        models: the models.
        read: returns the value of a text.

    Raises:
        ValueError: if a value cannot be read, or if several values are for all models.
    """
    if sum("=" not in one for one in words) > 1:
        raise ValueError(
            f"{option} has several values without a model, got {' '.join(words)}; name the model "
            "of each as MODEL=VALUE"
        )
    found: dict[str, _Value] = {}
    for word in sorted(words, key=lambda one: "=" in one):
        name, _, value = word.rpartition("=")
        try:
            found |= dict.fromkeys([name] if name else models, read(value))
        except ValueError as error:
            raise ValueError(f"{option} must be {PER_MODEL}, got {word!r}: {error}") from error
    return found
