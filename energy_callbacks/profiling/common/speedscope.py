"""Writes the file format of speedscope: https://www.speedscope.app/file-format-schema.json.

The format has no unit of energy: profiles of joules have unit ``none``, and the unit in their name.
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
    """Return the JSON of profiles of the same stacks; speedscope shows the first one first.

    Args:
        name: of the document.
        stacks: frames of each stack, outermost first; frames are hashable.
        describe: returns the fields of a frame.
        profiles: name of each profile, its unit, and the weight of each stack.
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
