"""The structures ``gpu_metrics_v1_1`` to ``gpu_metrics_v1_8`` of Linux, for trees of AMD GPUs.

Written field by field from ``drivers/gpu/drm/amd/include/kgd_pp_interface.h`` (Linux 6.17), with
the alignment of the C compiler; the reader has numbers of bytes instead.
"""

import ctypes
from ctypes import c_uint8 as u8
from ctypes import c_uint16 as u16
from ctypes import c_uint32 as u32
from ctypes import c_uint64 as u64

Fields = list[tuple[str, type]]  # name and type of each field

HEADER: Fields = [("structure_size", u16), ("format_revision", u8), ("content_revision", u8)]
_V1_1: Fields = [
    *HEADER,
    ("temperature_edge", u16),
    ("temperature_hotspot", u16),
    ("temperature_mem", u16),
    ("temperature_vrgfx", u16),
    ("temperature_vrsoc", u16),
    ("temperature_vrmem", u16),
    ("average_gfx_activity", u16),
    ("average_umc_activity", u16),
    ("average_mm_activity", u16),
    ("average_socket_power", u16),
    ("energy_accumulator", u64),
    ("system_clock_counter", u64),
    ("average_clocks", u16 * 7),
    ("current_clocks", u16 * 7),
    ("throttle_status", u32),
    ("current_fan_speed", u16),
    ("pcie_link_width", u16),
    ("pcie_link_speed", u16),
    ("padding", u16),
    ("gfx_activity_acc", u32),
    ("mem_activity_acc", u32),
    ("temperature_hbm", u16 * 4),
]
_V1_2: Fields = [*_V1_1, ("firmware_timestamp", u64)]
_V1_3: Fields = [
    *_V1_2,
    ("voltage_soc", u16),
    ("voltage_gfx", u16),
    ("voltage_mem", u16),
    ("padding1", u16),
    ("indep_throttle_status", u64),
]
_SOCKET: Fields = [
    *HEADER,
    ("temperature_hotspot", u16),
    ("temperature_mem", u16),
    ("temperature_vrsoc", u16),
    ("curr_socket_power", u16),
    ("average_gfx_activity", u16),
    ("average_umc_activity", u16),
]
_COUNTER: Fields = [("energy_accumulator", u64), ("system_clock_counter", u64)]
_LINKS: Fields = [
    ("gfxclk_lock_status", u32),
    ("pcie_link_width", u16),
    ("pcie_link_speed", u16),
    ("xgmi_link_width", u16),
    ("xgmi_link_speed", u16),
    ("gfx_activity_acc", u32),
    ("mem_activity_acc", u32),
    ("pcie_bandwidth_acc", u64),
    ("pcie_bandwidth_inst", u64),
    ("pcie_l0_to_recov_count_acc", u64),
    ("pcie_replay_count_acc", u64),
    ("pcie_replay_rover_count_acc", u64),
]
_NAKS: Fields = [("pcie_nak_sent_count_acc", u32), ("pcie_nak_rcvd_count_acc", u32)]
_XGMI: Fields = [("xgmi_read_data_acc", u64 * 8), ("xgmi_write_data_acc", u64 * 8)]
_CLOCKS: Fields = [
    ("firmware_timestamp", u64),
    ("current_gfxclk", u16 * 8),
    ("current_socclk", u16 * 4),
    ("current_vclk0", u16 * 4),
    ("current_dclk0", u16 * 4),
    ("current_uclk", u16),
]
_RESIDENCIES: Fields = [
    ("accumulation_counter", u32),
    ("prochot_residency_acc", u32),
    ("ppt_residency_acc", u32),
    ("socket_thm_residency_acc", u32),
    ("vr_thm_residency_acc", u32),
    ("hbm_thm_residency_acc", u32),
]
_STATUS: Fields = [("throttle_status", u32)]
_VCN: Fields = [("vcn_activity", u16 * 4)]
_JPEG: Fields = [("jpeg_activity", u16 * 32)]
_BANDWIDTH: Fields = [("mem_max_bandwidth", u64)]
_PAD: Fields = [("padding", u16)]
_LINK_STATUS: Fields = [("xgmi_link_status", u16 * 8), ("padding", u16)]


def _partitions(words: int) -> Fields:
    """``amdgpu_xcp_metrics`` of eight partitions, each with a number of words of 64 bits."""
    return [
        ("num_partition", u16),
        ("xcp_stats", u64 * words * 8),
        ("pcie_lc_perf_other_end_recovery", u32),
    ]


_V1_7: Fields = [
    *_SOCKET,
    *_BANDWIDTH,
    *_COUNTER,
    *_RESIDENCIES,
    *_LINKS,
    *_NAKS,
    *_XGMI,
    *_LINK_STATUS,
    *_CLOCKS,
]
# Words of a partition: gfx_busy_inst is u32 x 8, jpeg_busy u16 x 32 (x 40 in 1.8), vcn_busy
# u16 x 4, and 1 (in 1.6), 2 (in 1.7) or 4 (in 1.8) arrays of u64 x 8.
FIELDS: dict[tuple[int, int], Fields] = {
    (1, 1): _V1_1,
    (1, 2): _V1_2,
    (1, 3): _V1_3,
    (1, 4): [*_SOCKET, *_VCN, *_COUNTER, *_STATUS, *_LINKS, *_XGMI, *_CLOCKS, *_PAD],
    (1, 5): [
        *_SOCKET,
        *_VCN,
        *_JPEG,
        *_COUNTER,
        *_STATUS,
        *_LINKS,
        *_NAKS,
        *_XGMI,
        *_CLOCKS,
        *_PAD,
    ],
    (1, 6): [
        *_SOCKET,
        *_COUNTER,
        *_RESIDENCIES,
        *_LINKS,
        *_NAKS,
        *_XGMI,
        *_CLOCKS,
        *_partitions(21),
    ],
    (1, 7): [*_V1_7, *_partitions(29)],
    (1, 8): [*_V1_7, *_partitions(47)],
}


def gpu_metrics(revision: tuple[int, int], **values: int) -> bytes:
    """The file of a layout; fields without a value have all bits set, as the driver writes them."""
    layout = type("gpu_metrics", (ctypes.Structure,), {"_fields_": FIELDS[revision]})
    size = ctypes.sizeof(layout)
    table = layout.from_buffer(bytearray(b"\xff" * size))
    header = {"structure_size": size, "format_revision": revision[0]}
    for name, value in (header | {"content_revision": revision[1]} | values).items():
        if name not in dict(FIELDS[revision]):
            raise ValueError(f"layout {revision} has no field {name!r}")
        setattr(table, name, value)
    return bytes(table)
