"""The cases of Jetson boards, NVIDIA Grace and ACPI power meters."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.hwmon import ACPI_METER, GRACE
from energy_callbacks.sensing.sources.sysfs.jetson import JETSON
from tests.sensing.sources.conformance.case import Case
from tests.sensing.sources.trees import ina3221
from tests.sensing.sources.trees.hosts import acpi_meter, grace_module, grace_socket

CASES: Final = (
    Case(name="jetson board", family=JETSON, make=ina3221, scope="machine", named="VDD_IN"),
    Case(name="jetson gpu", family=JETSON, make=ina3221, named="VDD_CPU_GPU_CV", share=0.4),
    Case(name="jetson soc", family=JETSON, make=ina3221, scope="host", named="SOC", share=0.2),
    Case(name="grace socket", family=GRACE, make=grace_socket, scope="host"),
    Case(name="grace module", family=GRACE, make=grace_module, scope="machine"),
    Case(name="acpi meter", family=ACPI_METER, make=acpi_meter, scope="machine", is_only_one=True),
)
