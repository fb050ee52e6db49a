"""Every family of sensors in files opens, leaves out and reports its files in the same way."""

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from energy_callbacks.core.errors import ReadingMissed, SourceLost, SourceUnavailable
from energy_callbacks.sensing.sources.sysfs.family import whole_number
from tests.sensing.sources.conformance.case import LOAD, FamilyCase, FileLab, forbid, quantities
from tests.sensing.sources.conformance.cases import CASES
from tests.sensing.sources.trees import Tree

METERING = {"power", "energy"}
FAMILY_CASES = [case for case in CASES if isinstance(case, FamilyCase)]
every_family = pytest.mark.parametrize("case", FAMILY_CASES, ids=lambda case: case.name)
