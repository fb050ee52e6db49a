"""Tells whether this process may change settings of NVIDIA's driver, without trying."""

from pathlib import Path
from typing import Final

# Number of the bit of CAP_SYS_ADMIN in the masks of /proc/PID/status (linux/capability.h).
_SYS_ADMIN: Final = 21
# The user namespace in which the machine has started maps all 2^32 - 1 user ids to themselves
# (man 7 user_namespaces).
_ALL_IDS: Final = ["0", "0", "4294967295"]


def is_admin() -> bool:
    """Return whether this process has CAP_SYS_ADMIN outside of user namespaces, as root has.

    NVIDIA's driver asks the kernel for exactly this: the macro NV_IS_SUSER of its open kernel
    modules is ``capable(CAP_SYS_ADMIN)``. Root in a container usually does not have it.
    """
    try:
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        id_map = Path("/proc/self/uid_map").read_text(encoding="utf-8")
    except OSError:
        return False
    return has_sys_admin(status) and id_map.split() == _ALL_IDS


def has_sys_admin(status: str) -> bool:
    r"""Return whether the text of /proc/PID/status has CAP_SYS_ADMIN in the effective set.

    >>> has_sys_admin("CapEff:\t0000000000200000"), has_sys_admin("CapEff:\t00000000a80425fb")
    (True, False)
    """
    masks = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return bool(int(masks.get("CapEff", "0"), 16) >> _SYS_ADMIN & 1)
