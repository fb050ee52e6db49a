"""Finds the devices whose energies make up a sum, so that no energy is counted twice.

The energy of some devices contains that of others: a RAM module may be inside a CPU package, and a
sensor of the whole machine contains all other devices of its host. A sum leaves a device out if it
has the device that contains it:

* ``gpu``, ``host`` and ``machine`` have the devices of this scope.
* ``total`` has the sensors of the whole machine, if there are any, otherwise GPUs and host.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from energy_callbacks.core.records import Scope

SCOPES: Final = ("gpu", "host", "machine", "total")
"""All sums."""
NAMED_MACHINE: Final = "machine"
"""Key of the sensor of the whole machine that the user names, and parent of all others."""
_IN_MACHINE: Final = ("gpu", "host")


class Part(NamedTuple):
    """What a sum needs to know about a device.

    Attributes:
        scope: see ``Device.scope``.
        parent: see ``Device.parent``.
    """

    scope: Scope | None
    parent: str | None


def containers(parts: Mapping[str, Part]) -> dict[str, str | None]:
    """Return, for each device, the key of the device whose energy contains its energy, or ``None``.

    Args:
        parts: the devices of one host whose energies are known, by key.

    >>> containers({"machine": Part("machine", None), "gpu0": Part("gpu", None)})
    {'machine': None, 'gpu0': 'machine'}
    """
    machine = next((key for key, part in parts.items() if part.scope == "machine"), None)
    return {
        key: part.parent if part.parent in parts else machine if part.scope in _IN_MACHINE else None
        for key, part in parts.items()
    }


def in_sum(scope: str, parts: Mapping[str, Part]) -> tuple[str, ...]:
    """Return the keys of the devices whose energies make up a sum.

    Args:
        scope: one of ``SCOPES``.
        parts: the devices of one host whose energies are known, by key.

    >>> parts = {"gpu0": Part("gpu", None), "cpu0": Part("host", "gpu0")}
    >>> in_sum("gpu", parts), in_sum("host", parts), in_sum("total", parts)
    (('gpu0',), ('cpu0',), ('gpu0',))
    """
    inside = containers(parts)
    chosen = [key for key, part in parts.items() if part.scope and scope in (part.scope, "total")]
    return tuple(key for key in chosen if inside[key] not in chosen)
