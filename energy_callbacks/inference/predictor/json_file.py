"""Fields of a predictor as JSON and back; reading a file never runs code from it."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.inference.predictor.held_out import HeldOut
from energy_callbacks.inference.predictor.physics import Scales, names
from energy_callbacks.inference.predictor.residual import Residual

_KIND: Final = "energy-callbacks predictor"
_VERSION: Final = 1


def text(fields: Mapping[str, Any]) -> str:
    """Return the fields of a predictor as JSON.

    Args:
        fields: the fields, by name.
    """
    rows = zip(*(fields[one].tolist() for one in ("means", "stds", "theta")), strict=True)
    scales = fields["scales"]._asdict()
    kept = ("models", "identity", "source", "reference_mhz")
    document = {
        "kind": _KIND,
        "version": _VERSION,
        **{name: fields[name] for name in kept},
        "scales": {name: np.asarray(value).tolist() for name, value in scales.items()},
        # Natural logarithms: mean and standard deviation of the prior, and the fitted value.
        "parameters": dict(zip(names(fields["models"]), rows, strict=True)),
        "residuals": {name: one.lists() for name, one in fields["residuals"].items()},
        "held_out": [asdict(one) for one in fields["held_out"]],
    }
    return json.dumps(document, indent=1)


def read(path: Path) -> dict[str, Any]:
    """Return the fields in a file.

    Raises:
        ValueError: if the file cannot be read, or is no predictor of this version.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        _check(found)
        means, stds, theta = np.array([*found["parameters"].values()], dtype=float).T
        sample_s, batch, sample_j, power_w = found["scales"].values()
        return {
            "models": tuple(found["models"]),
            "identity": found["identity"],
            "source": found["source"],
            "reference_mhz": found["reference_mhz"],
            "scales": Scales(np.array(sample_s), np.array(batch), np.array(sample_j), power_w),
            "means": means,
            "stds": stds,
            "theta": theta,
            "residuals": {
                name: Residual(variances=stds**2, **{k: np.array(v) for k, v in one.items()})
                for name, one in found["residuals"].items()
            },
            "held_out": tuple(HeldOut(**one) for one in found["held_out"]),
        }
    except OSError as error:
        raise ValueError(f"the predictor cannot be read: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is not a predictor of version {_VERSION} ({error}); write it with "
            "energy-callbacks powercap fit"
        ) from error


def _check(found: Mapping[str, Any]) -> None:
    if (found["kind"], found["version"]) != (_KIND, _VERSION):
        raise ValueError(f"kind {found['kind']!r}, version {found['version']!r}")
    if [*found["parameters"]] != names(found["models"]):
        raise ValueError("the parameters are not those of the models")
