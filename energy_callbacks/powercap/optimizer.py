"""``PowerLimitOptimizer``: the setting ``power_limit`` of all callbacks and of ``EnergyMeter``."""

from dataclasses import dataclass

from energy_callbacks.accounting.attempt import ActiveAttempt
from energy_callbacks.powercap.options import OptimizerOptions
from energy_callbacks.powercap.run import PowerLimitRun


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitOptimizer(OptimizerOptions):
    """Finds the best power limit or clock of the GPUs during a training.

    ::

        callback = GpuEnergyCallback(power_limit=PowerLimitOptimizer(allow_changes=True))

    The search takes a few windows of some seconds. It begins when the training does, pauses in
    validation and while checkpoints are written, and begins again if the throughput or the power
    changes by more than 5 %. At the end of the training, the setting that was found before is
    restored. With the knobs ``limit`` and ``clock``, all work is done on a thread of its own, so
    that the losses of the training do not change.

    At most one of the first five arguments may be given. Without any, ``max_slowdown`` is 0.05.

    Args:
        max_slowdown: minimise the energy of a step that takes at most this fraction longer than
            with the setting found; 0.05 for 5 %.
        objective: ``"min_energy"`` minimises the energy of a step.
        eta: minimise the cost of Zeus: ``eta`` times energy plus ``1 - eta`` times highest power
            times time; between 0 and 1.
        cap_w: keep the mean power of all GPUs of the run together below this, in W, and minimise
            the time of a step.
        schedule: path of a CSV file with times and caps; the cap changes over time.
        knob: ``limit`` (power limit), ``clock`` (locked clock of the multiprocessors), or ``duty``
            (sleep after each step; needs no permission of the system, but ``cap_w`` or
            ``schedule``).
        allow_changes: whether settings of the GPUs may be changed. If ``False``, only a message
            says what would be done.
        window_steps: minimum number of optimizer steps of a window.
        window_s: minimum duration of a window, s; ``None`` chooses it from the sensor's timing.
        actuator: name of the actuator, such as ``nvml``, or an object; ``None`` takes the first one
            that is permitted to write.

    Raises:
        ValueError: for an invalid value, or if more than one objective is given.
        TypeError: if an argument has the wrong type.
    """

    def begin(self, attempt: ActiveAttempt) -> PowerLimitRun:
        """Begin to optimise in an attempt; called by ``EnergyMeter``."""
        return PowerLimitRun(self, attempt)
