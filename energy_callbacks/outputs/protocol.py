"""The seam for outputs: where figures go while training."""

from collections.abc import Mapping
from typing import Protocol


class Output(Protocol):
    """Takes scalars at a step; called on the training thread, so it must be quick."""

    def write(self, scalars: Mapping[str, float], step: int, unix_s: float) -> None:
        """Write figures of one step.

        Args:
            scalars: tag to value, see ``docs/reference/metrics.md``.
            step: the training's own step.
            unix_s: wall time of the figures.
        """
        ...

    def close(self) -> None:
        """Flush and release; safe to call twice."""
        ...
