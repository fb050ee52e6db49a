"""The cases of Jetson boards, NVIDIA Grace and ACPI power meters."""

from typing import Final

from energy_callbacks.sensing.sources.sysfs.hwmon import ACPI_METER, GRACE
from energy_callbacks.sensing.sources.sysfs.jetson import JETSON
from tests.sensing.sources.conformance.case import family_case
from tests.sensing.sources.trees import ina3221
from tests.sensing.sources.trees.hosts import acpi_meter, grace_module, grace_socket

CASES: Final = (
    family_case(JETSON, ina3221, name="jetson board", scope="machine", named="VDD_IN"),
    family_case(JETSON, ina3221, name="jetson gpu", named="VDD_CPU_GPU_CV", share=0.4),
    family_case(JETSON, ina3221, name="jetson soc", scope="host", named="SOC", share=0.2),
    family_case(GRACE, grace_socket, name="grace socket", scope="host"),
    family_case(GRACE, grace_module, name="grace module", scope="machine"),
    family_case(
        ACPI_METER,
        acpi_meter,
        name="acpi meter",
        scope="machine",
        impossible={"two devices": "of several meters none is read, because they may overlap"},
    ),
)
