"""Creates files for speedscope, a viewer of profiles.

The format is defined in https://www.speedscope.app/file-format-schema.json. It has no unit of
energy. Energy profiles have the unit ``none``, and their names state the actual unit.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar

FrameT = TypeVar("FrameT")


def document(
    name: str,
    stacks: Sequence[Sequence[FrameT]],
    describe: Callable[[FrameT], Mapping[str, Any]],
    profiles: Mapping[str, tuple[Literal["none", "seconds"], Sequence[float]]],
) -> str:
    """Return a JSON document with one or more profiles of the same stacks.

    Args:
        name: name of the document.
        stacks: frames of each stack, outermost frame first; frames must be hashable.
        describe: function that returns the JSON fields of a frame, such as ``name``.
        profiles: maps the name of each profile to its unit, and to the weights in the order of
            ``stacks``. Speedscope shows the first profile when it opens the file.
    """
    numbers: dict[FrameT, int] = {}
    samples = [[numbers.setdefault(frame, len(numbers)) for frame in stack] for stack in stacks]
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "exporter": "energy_callbacks",
            "activeProfileIndex": 0,
            "shared": {"frames": [describe(frame) for frame in numbers]},
            "profiles": [
                {
                    "type": "sampled",
                    "name": profile,
                    "unit": unit,
                    "startValue": 0,
                    "endValue": sum(weights),
                    "samples": samples,
                    "weights": weights,
                }
                for profile, (unit, weights) in profiles.items()
            ],
        }
    )
