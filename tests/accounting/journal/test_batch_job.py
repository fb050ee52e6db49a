"""The job of a batch system, from the variables and files of each system."""

from dataclasses import asdict
from pathlib import Path

import pytest

from energy_callbacks.accounting.journal.batch_job import Job, from_record, identity

SLURM = {
    "SLURM_JOB_ID": "4242",
    "SLURM_JOB_NAME": "train",
    "SLURM_JOB_PARTITION": "gpu",
    "SLURM_CLUSTER_NAME": "alps",
    "SLURM_JOB_USER": "ann",
    "SLURM_JOB_ACCOUNT": "physics",
}
AD = r"""
AccountingGroup = "physics.ann"
ClusterId = 107
GlobalJobId = "submit.example.org#107.3#1700000000"
JobBatchName = "train \"resnet\""
Owner = "ann"
ProcId = 3
Requirements = (TARGET.Arch == "X86_64") && (TARGET.Owner = "eve")
"""


def in_files(root: Path, **files: str) -> Path:
    """A file system with these files."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return root


def test_outside_of_any_batch_system_there_is_no_job(tmp_path: Path) -> None:
    """A host name alone is not a pod, and an empty variable is not a job."""
    assert identity({"HOSTNAME": "laptop", "SLURM_JOB_ID": ""}, tmp_path) is None


def test_a_job_of_slurm(tmp_path: Path) -> None:
    """Id, name, user, account, partition and cluster are read."""
    found = identity(SLURM, tmp_path)
    assert found == Job(
        system="slurm",
        id="4242",
        name="train",
        user="ann",
        account="physics",
        queue="gpu",
        cluster="alps",
    )
    assert found.label == "Slurm job 4242, train, in alps/gpu"


def test_a_task_of_an_array_is_called_as_squeue_calls_it(tmp_path: Path) -> None:
    """The label is ``<array>_<task>``; the id of the task is kept."""
    array = {"SLURM_ARRAY_JOB_ID": "4240", "SLURM_ARRAY_TASK_ID": "2"}
    found = identity(SLURM | array, tmp_path)
    assert found is not None
    assert (found.id, found.array_id, found.task) == ("4242", "4240", "2")
    assert found.label.startswith("Slurm job 4240_2, ")


def test_a_job_of_htcondor(tmp_path: Path) -> None:
    """Numbers and strings of the ad are read; expressions are ignored."""
    ad = in_files(tmp_path, ad=AD) / "ad"
    found = identity({"_CONDOR_JOB_AD": str(ad), "_CONDOR_SLOT": "slot1_2"}, tmp_path)
    assert found == Job(
        system="htcondor",
        id="107.3",
        array_id="107",
        task="3",
        name='train "resnet"',
        user="ann",
        account="physics.ann",
        cluster="submit.example.org",
        slot="slot1_2",
    )
    assert found.label == 'HTCondor job 107.3, train "resnet", in submit.example.org'


def test_an_ad_that_cannot_be_read_leaves_the_slot(tmp_path: Path) -> None:
    """The job is known, and its other fields are unknown."""
    found = identity({"_CONDOR_JOB_AD": str(tmp_path), "_CONDOR_SLOT": "slot1"}, tmp_path)
    assert found == Job(system="htcondor", slot="slot1")


def test_a_pod(tmp_path: Path) -> None:
    """The pod's name is the host name; its namespace is that of the service account."""
    root = in_files(
        tmp_path, **{"var__run__secrets__kubernetes.io__serviceaccount__namespace": "vision\n"}
    )
    found = identity({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-x7k2p"}, root)
    assert found == Job(system="kubernetes", id="train-x7k2p", queue="vision")
    assert found.label == "Kubernetes pod train-x7k2p, in vision"


def test_a_pod_of_an_indexed_job(tmp_path: Path) -> None:
    """The host name is job and index; variables of the downward API take precedence."""
    variables = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "HOSTNAME": "train-3",
        "JOB_COMPLETION_INDEX": "3",
        "POD_NAME": "train-3-x7k2p",
        "POD_NAMESPACE": "vision",
    }
    assert identity(variables, tmp_path) == Job(
        system="kubernetes", id="train-3-x7k2p", task="3", name="train", queue="vision"
    )


def test_labels_name_the_job_of_a_pod(tmp_path: Path) -> None:
    """They are read from the file of the downward API."""
    root = in_files(
        tmp_path, etc__podinfo__labels='app="x"\nbatch.kubernetes.io/job-name="nightly"\n'
    )
    found = identity({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "nightly-x7k2p"}, root)
    assert found is not None
    assert found.name == "nightly"


def test_the_inner_scheduler_knows_the_job(tmp_path: Path) -> None:
    """Slurm and HTCondor in pods take precedence over Kubernetes."""
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "slurmd-0"}
    for inner, system in ((SLURM, "slurm"), ({"_CONDOR_SLOT": "slot1"}, "htcondor")):
        found = identity(pod | inner, tmp_path)
        assert found is not None
        assert found.system == system


def test_an_endless_name_is_cut(tmp_path: Path) -> None:
    """Users choose the names, so their length in a report is limited."""
    found = identity(SLURM | {"SLURM_JOB_NAME": "x" * 10_000}, tmp_path)
    assert found is not None
    assert found.name == "x" * 200


@pytest.mark.parametrize("record", [None, {}, "slurm", {"id": "7"}])
def test_a_header_without_a_job_has_none(record: object) -> None:
    """Older journals have none."""
    assert from_record(record) is None


def test_a_header_gives_the_job_back(tmp_path: Path) -> None:
    """Also with unknown fields of a later version, or of another system."""
    found = identity(SLURM, tmp_path)
    assert found is not None
    assert from_record(asdict(found) | {"colour": "blue"}) == found
    assert from_record({"system": "flux", "id": "f1"}) == Job(system="flux", id="f1")
