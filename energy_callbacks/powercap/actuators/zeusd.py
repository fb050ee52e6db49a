"""Changes settings of NVIDIA cards through ``zeusd``, the daemon of the Zeus project.

The daemon runs as root and takes HTTP requests through a Unix socket (https://ml.energy/zeus/zeusd,
zeusd 0.16). It numbers the GPUs as NVML does, and has no UUIDs. A request is therefore sent only if
the daemon lists the same models, in the same order, as NVML does in this process.
"""

import http.client
import os
from contextlib import closing
from typing import Any, Final
from urllib.parse import urlencode

from energy_callbacks.core.errors import ActuatorError
from energy_callbacks.core.units import milliwatts
from energy_callbacks.powercap.actuators.nvidia_card import NvidiaActuator
from energy_callbacks.powercap.actuators.unix_http import UnixConnection, json_object
from energy_callbacks.powercap.settings import KnobRange, Setting

# Sockets of zeusd 0.16 and of earlier versions; the environment variable ZEUSD_SOCK_PATH precedes.
_SOCKETS: Final = ("/run/zeusd/zeusd.sock", "/var/run/zeusd.sock")
# Time limit for the daemon to answer, s. It waits for the driver.
_PATIENCE_S: Final = 5.0
_GROUP: Final = "gpu-control"
_NEEDS: Final = (
    "it needs the daemon zeusd (https://ml.energy/zeus/zeusd), which an administrator installs "
    "once, with the API group 'gpu-control'"
)


class ZeusdActuator(NvidiaActuator):
    """Sends requests to zeusd.

    If the daemon requires a token, the environment variable ``ZEUSD_TOKEN`` has it, as for Zeus.
    """

    name = "zeusd"
    needs = _NEEDS

    def _permission(self, uuid: str) -> tuple[bool | None, str]:
        try:
            self._index(uuid)
        except ActuatorError as error:
            return False, str(error)
        return True, f"zeusd answers at {_socket()}"

    def _write(self, uuid: str, setting: Setting, within: KnobRange) -> None:
        operation, values = _operation(setting, within)
        query = urlencode({"gpu_ids": self._index(uuid), **values, "block": "true"})
        status, text = _send("POST", f"/gpu/{operation}?{query}")
        if status != http.client.OK:
            raise ActuatorError(f"{uuid}: zeusd answers {operation} with {status}: {text.strip()}")

    def _index(self, uuid: str) -> int:
        """Return the number of a card for the daemon, if it permits changes.

        Raises:
            ActuatorError: if the daemon cannot be used, with the reason.
        """
        status, text = _send("GET", "/discover")
        offer = json_object(text)
        if status != http.client.OK or not isinstance(offer.get("gpus"), list):
            raise ActuatorError(
                f"zeusd at {_socket()} does not list the names of its GPUs",
                "use zeusd 0.16 or later",
            )
        if _GROUP not in offer.get("enabled_api_groups", ()):
            raise ActuatorError(f"zeusd at {_socket()} does not offer {_GROUP!r}")
        if offer.get("auth_required"):
            _check_token()
        index, names = self._ask(uuid, self._place)
        theirs = {gpu.get("id"): gpu.get("name") for gpu in offer["gpus"]}
        if theirs != dict(enumerate(names)):
            raise ActuatorError(
                f"zeusd at {_socket()} lists other GPUs than NVML in this process, so that the "
                "numbers of GPUs may differ"
            )
        return index

    def _place(self, handle: Any) -> tuple[int, list[str]]:
        """Return NVML's number of a card, and the names of all cards."""
        nvml = self._nvml
        places = range(nvml.nvmlDeviceGetCount())
        names = [nvml.nvmlDeviceGetName(nvml.nvmlDeviceGetHandleByIndex(i)) for i in places]
        return nvml.nvmlDeviceGetIndex(handle), names


def _operation(setting: Setting, within: KnobRange) -> tuple[str, dict[str, int]]:
    """Return the name of the request of zeusd for a setting, and its values."""
    value = setting.value
    if setting.knob == "limit":
        return "set_power_limit", {"power_limit_mw": round(milliwatts(value or 0.0))}
    clocks = "gpu_locked_clocks" if setting.knob == "clock" else "mem_locked_clocks"
    if value is None:
        return f"reset_{clocks}", {}
    lowest_mhz = within.lowest if setting.knob == "clock" else value
    return f"set_{clocks}", {"min_clock_mhz": round(lowest_mhz), "max_clock_mhz": round(value)}


def _socket() -> str:
    """Return the path of the daemon's socket: that of the environment, or the first that exists."""
    paths = (os.environ.get("ZEUSD_SOCK_PATH"), *filter(os.path.exists, _SOCKETS), _SOCKETS[0])
    return next(path for path in paths if path)


def _send(method: str, target: str) -> tuple[int, str]:
    token = os.environ.get("ZEUSD_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with closing(UnixConnection(_socket(), _PATIENCE_S)) as connection:
            connection.request(method, target, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        raise ActuatorError(f"zeusd does not answer at {_socket()} ({error})") from error


def _check_token() -> None:
    status, text = _send("GET", "/auth/whoami")
    if status != http.client.OK or _GROUP not in json_object(text).get("scopes", ()):
        raise ActuatorError(
            f"zeusd at {_socket()} requires a token that permits {_GROUP!r}",
            "set the environment variable ZEUSD_TOKEN",
        )
