"""The tasks of the benchmark: a model on a GPU under a cap that is fixed or changes."""

from dataclasses import dataclass
from typing import Final

from energy_callbacks.inference.control.loop import CapSchedule

# As in the published benchmark: 150 iterations, and changes after 50 and 100.
WINDOWS: Final = 150


@dataclass(frozen=True, slots=True)
class Task:
    """A task.

    Attributes:
        name: its name.
        key: preset of the GPU, without ``sim:``.
        model: name of the model.
        schedule: the cap over time.
    """

    name: str
    key: str
    model: str
    schedule: CapSchedule

    @property
    def is_dynamic(self) -> bool:
        """Whether the cap changes."""
        return len(self.schedule.steps) > 1

    @property
    def caps_w(self) -> tuple[float, ...]:
        """All its caps, W."""
        return tuple(cap_w for _, cap_w in self.schedule.steps)


def _task(key: str, model: str, *caps_w: float) -> Task:
    steps = tuple((at * WINDOWS / len(caps_w), cap_w) for at, cap_w in enumerate(caps_w))
    return Task(
        f"{key} {model} {'-'.join(f'{cap:g}' for cap in caps_w)} W", key, model, CapSchedule(steps)
    )


# Those of the A100 are tasks 20, 17, 29 and 30 of the published benchmark, that of the RTX 3080 Ti
# with resnet50 is 13. The others have caps of 40 to 75 % of the highest power.
TASKS: Final = (
    _task("a100", "resnet50", 150.0),
    _task("a100", "efficientnet_v2_m", 180.0),
    _task("rtx3080ti", "resnet50", 170.0),
    _task("h200", "resnet50", 300.0),
    _task("h200", "mobilenet_v2", 250.0),
    _task("v100", "resnet50", 150.0),
    _task("a100", "resnet50", 200.0, 160.0, 120.0),
    _task("a100", "efficientnet_v2_m", 130.0, 180.0, 230.0),
    _task("rtx3080ti", "vgg19", 200.0, 150.0, 180.0),
    _task("h200", "resnet50", 400.0, 280.0, 350.0),
    _task("v100", "resnet50", 180.0, 120.0, 200.0),
)
# Without privileges, the cap is lowered by 20 % as in the test on a real GPU.
UNPRIVILEGED: Final = (
    _task("h200", "resnet50", 300.0, 240.0),
    _task("h200", "mobilenet_v2", 250.0, 200.0),
)
