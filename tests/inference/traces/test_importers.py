"""Files of other profilers."""

import json
from pathlib import Path

import pytest

from energy_callbacks.inference.records import Configuration, MeasuredWindow, Tenant
from energy_callbacks.inference.traces import read

ZEUS = "dataset,network,batch_size,optimizer,power_limit,time_per_epoch,average_power\n"
PCTODL = (
    "model_name,p_list,b_list,target_freq,mem_freq,sm_freq,sm_util,mem_util,"
    "throughput_total,power_avg,power_max\n"
)


def written(path: Path, text: str) -> list[MeasuredWindow]:
    """Return the windows of a file with this text."""
    path.write_text(text)
    return read(path)


def test_trainings_of_zeus(tmp_path: Path) -> None:
    """50,000 examples of CIFAR-100 in 10 s are 5,000 a second, at the limit of the row."""
    row = "cifar100,shufflenetv2,1024,adam,125,10,90.5\n"
    (one,) = written(tmp_path / "summary_power_v100.csv", ZEUS + row)
    tenant = Tenant(model="shufflenetv2", share_pct=100.0, batch=1024)
    assert one.configuration == Configuration(tenants=(tenant,), power_limit_w=125.0)
    assert (one.throughput_per_s, one.power_mean_w, one.energy_j) == (5000.0, 90.5, 905.0)
    assert (one.source, one.mode, one.gpu_name) == ("imported", "train", "v100")
    assert one.dataset == "cifar100, adam"


def test_a_dataset_of_unknown_size_is_an_error(tmp_path: Path) -> None:
    """Samples per second need the number of samples."""
    with pytest.raises(ValueError, match=r"line 2, column 1 \(dataset\): the samples of 'mine'"):
        written(tmp_path / "summary_power_v100.csv", ZEUS + "mine,net,8,adam,125,10,90\n")


def test_a_row_of_zeros_of_pctodl_is_out_of_memory(tmp_path: Path) -> None:
    """Its figures are unknown, never zero."""
    rows = 'vgg19,"[50, 50]","[8, 8]",1410,1215,1405,80,30,500.5,200,230\n'
    zeros = 'vgg19,"[50, 50]","[256, 256]",1410,1215,0,0,0,0,0,0\n'
    good, oom = written(tmp_path / "mps_results.csv", PCTODL + rows + zeros)
    assert good.configuration.tenants == (Tenant(model="vgg19", share_pct=50.0, batch=8),) * 2
    assert (good.status, good.throughput_per_s, good.power_mean_w) == ("ok", 500.5, 200.0)
    assert (good.configuration.sm_mhz, good.configuration.mem_mhz) == (1410.0, 1215.0)
    assert (oom.status, oom.throughput_per_s, oom.power_mean_w) == ("oom", None, None)
    assert oom.configuration.sm_mhz == 1410.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ZEUS + "cifar100,net,8,adam,125,0,90\n", r"6 \(time_per_epoch\): 0 is not above 0"),
        (ZEUS + "cifar100,net,8,adam,125,10,-1\n", r"7 \(average_power\): -1 is not above 0"),
        (ZEUS + "cifar100,net,0,adam,125,10,90\n", r"3 \(batch_size\): 0 is not above 0"),
        (PCTODL + 'a,"[50, null]","[8, 8]",,,,,,5,200,\n', r"2 \(p_list\): None is no share"),
        (PCTODL + 'a,"[50, 50]","[8, -8]",,,,,,5,200,\n', r"3 \(b_list\): -8 is no batch"),
        (PCTODL + 'a,"[50, 50]","[8]",,,,,,5,200,\n', r"3 \(b_list\): 1 values for 2 tenants"),
    ],
)
def test_impossible_values_are_errors(tmp_path: Path, text: str, message: str) -> None:
    """They name the line and the column."""
    with pytest.raises(ValueError, match=rf"line 2, column {message}"):
        written(tmp_path / "log.csv", text)


def test_the_measurements_of_igniter(tmp_path: Path) -> None:
    """Rows of a table are batches 1, 16 and 32, and columns are shares of 10, 50 and 100 %."""
    table = [[8.0, 3.0, 2.0], [90.0, 20.0, 11.0], [180.0, 38.0, 20.0]]
    entries = [
        {"hardware": {"idlepower": 53.5}},
        {"resnet50": {"gpulatency": table}},
        {"resnet50": {"power": [[80, 120, 130], [85, 186, 288], [85, 185, 293]]}},
        {"resnet50": {"frequency": [[1530] * 3] * 3}},
    ]
    text = "\n".join(map(json.dumps, entries))
    idle, *windows = written(tmp_path / "config", text)
    assert (idle.phase, idle.power_mean_w, idle.configuration.tenants) == ("idle", 53.5, ())
    last = windows[-1]
    assert len(windows) == 9
    assert last.configuration.tenants == (Tenant(model="resnet50", share_pct=100.0, batch=32),)
    assert (last.throughput_per_s, last.power_mean_w) == (1600.0, 293)


def test_times_of_batches_of_igniter(tmp_path: Path) -> None:
    """The file's name has the configuration, and the median time the throughput."""
    times = json.dumps([{"computeMs": ms} for ms in (480.0, 2.0, 2.5)])
    (one,) = written(tmp_path / "durtime_alexnet_b10_t50", times)
    assert one.configuration.tenants == (Tenant(model="alexnet", share_pct=50.0, batch=10),)
    assert (one.throughput_per_s, one.steps, one.power_mean_w) == (4000.0, 3, None)


def test_the_recordings_of_an_h200(tmp_path: Path) -> None:
    """The names of the tenants are separated by a bar."""
    head = (
        "model,tenants_n,share_pct,batch,sm_mhz_meas,throughput_total,throughput_per_tenant,"
        "power_mean_w,status\n"
    )
    row = 'a|b,2,"[50, 25]","[4, 8]",1980.0,30.0,"[10.0, 20.0]",200.0,ok\n'
    (one,) = written(tmp_path / "mps.csv", head + row)
    assert [tenant.model for tenant in one.configuration.tenants] == ["a", "b"]
    assert one.tenant_throughputs_per_s == (10.0, 20.0)


def test_unknown_columns_are_an_error(tmp_path: Path) -> None:
    """The message has the columns of all known formats."""
    with pytest.raises(ValueError, match="line 1: the columns 'x,y' are those of no known format"):
        written(tmp_path / "other.csv", "x,y\n1,2\n")


def test_a_short_line_is_an_error(tmp_path: Path) -> None:
    """A line that was cut off is found."""
    with pytest.raises(ValueError, match=r"line 2, column 7 \(average_power\): the line ends"):
        written(tmp_path / "summary_power_v100.csv", ZEUS + "cifar100,net,8,adam,125,10\n")


def test_a_long_line_is_an_error(tmp_path: Path) -> None:
    """A list that is not quoted is found, because its commas make cells of it."""
    with pytest.raises(ValueError, match="line 2: 1 cells more than the header has; quote"):
        written(tmp_path / "summary_power_v100.csv", ZEUS + "cifar100,net,8,adam,125,10,90,1\n")


def test_a_file_that_is_no_csv_is_an_error(tmp_path: Path) -> None:
    """A cell that is too large, and text that is not UTF-8, are errors with the file."""
    path = tmp_path / "summary_power_v100.csv"
    with pytest.raises(ValueError, match=r"v100.csv, after line \d: field larger"):
        written(path, ZEUS + "x" * 200_000 + "\n")
    path.write_bytes(ZEUS.encode() + b"a" * 100_000 + b"\xff\n")
    with pytest.raises(ValueError, match=r"v100.csv, after line 1: .* can't decode"):
        read(path)
