"""Lists all cases; a new family is a line here."""

from typing import Final

from tests.sensing.sources.conformance import acme, amd, commands, cpus, hosts, intel, nvidia
from tests.sensing.sources.conformance.case import Case

CASES: Final[tuple[Case, ...]] = (
    *acme.CASES,
    *amd.CASES,
    *intel.CASES,
    *hosts.CASES,
    *cpus.CASES,
    *commands.CASES,
    *nvidia.CASES,
)
