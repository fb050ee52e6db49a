"""Lists the cases of all families; a new family is a line here."""

from typing import Final

from tests.sensing.sources.conformance import acme, amd, hosts, intel
from tests.sensing.sources.conformance.case import Case

CASES: Final[tuple[Case, ...]] = (
    *acme.CASES,
    *amd.CASES,
    *intel.CASES,
    *hosts.CASES,
)
