"""The exceptions of this package, as one tree.

::

    EnergyCallbacksError
    ├── MissingExtraError (also ImportError)    a package is not installed
    ├── JournalError                            a journal, report, comparison or log cannot be used
    ├── NothingFits                             no batch size fits or can be recommended
    ├── PowerCapError                           a setting of a GPU was not changed
    │   ├── ActuatorError                       the driver or the actuator cannot do it
    │   ├── ConsentError                        the user has not allowed changes
    │   ├── ForeignChange                       another program has changed the setting meanwhile
    │   └── CardInUse                           another job has changed settings of the same GPU
    └── SourceError                             a sensor failed
        ├── SourceUnavailable                   it cannot be opened on this machine
        ├── ReadingMissed                       this reading failed, the next may succeed
        └── SourceLost                          no reading succeeds until it is opened again

Wrong arguments raise ``ValueError`` or ``TypeError`` when an object is constructed.
During a training, no ``SourceError`` reaches the training's code: the readings have a gap, and a
warning is written.
"""

from typing import Self


class EnergyCallbacksError(Exception):
    """Base class of all errors of this package."""


class MissingExtraError(EnergyCallbacksError, ImportError):
    """A package is not installed; the message has the command that installs it."""


class JournalError(EnergyCallbacksError):
    """A journal, report, comparison or log cannot be used; the message says why."""


class NothingFits(EnergyCallbacksError):
    """No batch size fits into the memory of the device, or none can be recommended."""


class PowerCapError(EnergyCallbacksError):
    """A setting of a GPU was not changed; the message says why."""


class _ErrorWithFix(EnergyCallbacksError):
    """An error that may have a fix.

    Args:
        reason: text for the user that says what failed or what is missing.
        fix: text that says what the user can do; ``""`` if nothing can be done.
    """

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason if not fix else f"{reason}; {fix}")
        self.reason = reason
        self.fix = fix

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (self.reason, self.fix)


class ActuatorError(_ErrorWithFix, PowerCapError):
    """A setting of a GPU cannot be read or changed."""


class ConsentError(PowerCapError):
    """The user has not allowed changes of the GPU; nothing was written."""


class ForeignChange(PowerCapError):
    """Another program has changed the setting since it was last written; it is left as it is."""


class CardInUse(PowerCapError):
    """Another job holds the lock of the GPU; nothing was written."""


class SourceError(EnergyCallbacksError):
    """A sensor failed; the subclass says how."""


class SourceUnavailable(_ErrorWithFix, SourceError):
    """The sensor cannot be opened on this machine."""


class ReadingMissed(SourceError):
    """One reading failed; the next one may succeed."""


class SourceLost(SourceError):
    """The sensor is gone (GPU lost from the PCIe bus, driver unloaded).

    No later reading succeeds. If the sensor comes back, the source can be opened again.
    """
