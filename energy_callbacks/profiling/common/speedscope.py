"""The file format of speedscope: https://www.speedscope.app/file-format-schema.json.

It knows no unit of energy: profiles of joules say ``none``, and the unit in their name.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal


def sampled(
    name: str,
    unit: Literal["none", "seconds"],
    samples: Sequence[Sequence[int]],
    weights: Sequence[float],
) -> dict[str, Any]:
    """A profile of stacks.

    Args:
        name: of the profile.
        unit: of the weights.
        samples: numbers of frames, outermost first.
        weights: of each sample.
    """
    return {
        "type": "sampled",
        "name": name,
        "unit": unit,
        "startValue": 0,
        "endValue": sum(weights),
        "samples": samples,
        "weights": weights,
    }


def document(
    name: str, frames: Sequence[Mapping[str, Any]], profiles: Sequence[Mapping[str, Any]]
) -> str:
    """The file, as JSON; the first profile is shown first."""
    return json.dumps(
        {
            "$schema": "https://www.speedscope.app/file-format-schema.json",
            "name": name,
            "exporter": "energy_callbacks",
            "activeProfileIndex": 0,
            "shared": {"frames": frames},
            "profiles": profiles,
        }
    )
