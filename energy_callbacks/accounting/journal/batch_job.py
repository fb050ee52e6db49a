"""Finds the batch job that this process belongs to, in Slurm, HTCondor or Kubernetes.

Origin of the fields of ``Job``:

* Slurm: environment variables (sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"). Each task of a job array
  has its own id; squeue and sacct show the task as ``<array>_<task>``.
* HTCondor: the environment variable ``_CONDOR_JOB_AD`` contains the path of a file with lines
  ``Name = value`` (users' manual, "Services for Running Jobs").
* Kubernetes: ``KUBERNETES_SERVICE_HOST`` is set in every container. The host name is the name of
  the pod, or ``<job>-<index>`` in an Indexed Job (Kubernetes documentation, "Jobs"). Variables such
  as ``POD_NAME`` and the file of labels exist only if the user has defined them ("Downward API").

If Slurm or HTCondor runs inside Kubernetes pods, only Slurm or HTCondor knows the job. Therefore
Kubernetes is checked last.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NAMESPACE_FILE: Final = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
_LABELS_FILE: Final = "etc/podinfo/labels"
# Labels of a pod that contain the name of the pod's Job; the first label that exists is used.
_JOB_LABELS: Final = (
    "batch.kubernetes.io/job-name",
    "job-name",
    "training.kubeflow.org/job-name",
)
# Maximum lengths in characters: of a field, and of the text that is read from one file.
_LONGEST, _LONGEST_TEXT = 200, 1_000_000
_SLURM: Final = {
    "id": "JOB_ID",
    "array_id": "ARRAY_JOB_ID",
    "task": "ARRAY_TASK_ID",
    "name": "JOB_NAME",
    "user": "JOB_USER",
    "account": "JOB_ACCOUNT",
    "queue": "JOB_PARTITION",
    "cluster": "CLUSTER_NAME",
}
"""Names of Slurm's environment variables, without the prefix ``SLURM_``, by field of ``Job``."""
_TITLES: Final = {"slurm": "Slurm", "htcondor": "HTCondor", "kubernetes": "Kubernetes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job of a batch system; unknown fields are ``None``.

    Attributes:
        system: ``slurm``, ``htcondor`` or ``kubernetes``.
        id: ``SLURM_JOB_ID``, ``ClusterId.ProcId`` of HTCondor, or name or host name of the pod.
        array_id: id of the Slurm job array, or ``ClusterId`` of HTCondor.
        task: number of the task in the Slurm job array, ``ProcId`` of HTCondor, or completion index
            of an Indexed Job of Kubernetes.
        name: name of the job; in Kubernetes, name of the Job that the pod belongs to.
        user: name of the user who owns the job.
        account: account that is charged for the job.
        queue: partition of Slurm, or namespace of Kubernetes.
        cluster: name of the Slurm cluster, or of the HTCondor scheduler (schedd).
        slot: name of the HTCondor slot that runs the job.
    """

    system: str
    id: str | None = None
    array_id: str | None = None
    task: str | None = None
    name: str | None = None
    user: str | None = None
    account: str | None = None
    queue: str | None = None
    cluster: str | None = None
    slot: str | None = None

    @property
    def label(self) -> str:
        """The job in one line of text, for reports.

        >>> Job(system="slurm", id="78", array_id="77", task="1", name="train", queue="gpu").label
        'Slurm job 77_1, train, in gpu'
        """
        title = _TITLES.get(self.system, self.system)
        kind = "pod" if self.system == "kubernetes" else "job"
        is_task = self.system == "slurm" and self.array_id is not None and self.task is not None
        number = f"{self.array_id}_{self.task}" if is_task else self.id
        place = "/".join(part for part in (self.cluster, self.queue) if part)
        job = " ".join(part for part in (title, kind, number) if part)
        return ", ".join(part for part in (job, self.name, place and f"in {place}") if part)


def identity(environment: Mapping[str, str], root: Path = Path("/")) -> Job | None:
    """Return the batch job of a process; ``None`` if the process runs in no batch system.

    Args:
        environment: environment variables of the process.
        root: root folder of the file system of the process.
    """
    return _slurm(environment) or _htcondor(environment) or _kubernetes(environment, root)


def from_record(record: Any) -> Job | None:
    """Return the job in the header of a journal; ``None`` if ``record`` describes no job."""
    if not isinstance(record, Mapping) or not record.get("system"):
        return None
    names = Job.__dataclass_fields__
    return Job(**{k: str(v) for k, v in record.items() if k in names and v is not None})


def _job(system: str, **fields: str | None) -> Job:
    """Return a job; fields are cut to ``_LONGEST`` characters, empty fields become ``None``."""
    return Job(system=system, **{k: value[:_LONGEST] for k, value in fields.items() if value})


def _slurm(environment: Mapping[str, str]) -> Job | None:
    fields = {name: environment.get(f"SLURM_{variable}") for name, variable in _SLURM.items()}
    return _job("slurm", **fields) if fields["id"] else None


def _htcondor(environment: Mapping[str, str]) -> Job | None:
    path, slot = environment.get("_CONDOR_JOB_AD"), environment.get("_CONDOR_SLOT")
    if not path and not slot:
        return None
    ad = _attributes(_text(Path(path)) if path else "")
    array_id, task = ad.get("clusterid"), ad.get("procid")
    return _job(
        "htcondor",
        id=f"{array_id}.{task}" if array_id and task else None,
        array_id=array_id,
        task=task,
        name=ad.get("jobbatchname"),
        user=ad.get("owner"),
        account=ad.get("accountinggroup") or ad.get("acctgroup"),
        # GlobalJobId has the form <schedd>#<cluster>.<proc>#<time>.
        cluster=ad.get("globaljobid", "").partition("#")[0],
        slot=slot,
    )


def _attributes(ad: str) -> dict[str, str]:
    r"""Return the integers and strings of HTCondor's file of a job, by lower-case name.

    >>> _attributes('ClusterId = 12\nOwner = "ann"\nRequirements = (Memory > 3)')
    {'clusterid': '12', 'owner': 'ann'}
    """
    lines = re.finditer(r'^(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|(\d+))\s*$', ad, re.MULTILINE)
    return {
        line[1].lower(): line[3] if line[2] is None else re.sub(r"\\(.)", r"\1", line[2])
        for line in lines
    }


def _kubernetes(environment: Mapping[str, str], root: Path) -> Job | None:
    if not environment.get("KUBERNETES_SERVICE_HOST"):
        return None
    host, task = environment.get("HOSTNAME"), environment.get("JOB_COMPLETION_INDEX")
    pod = environment.get("POD_NAME") or environment.get("KUBERNETES_POD_NAME")
    labels = dict(re.findall(r'^([^="]+)="(.*)"$', _text(root / _LABELS_FILE), re.MULTILINE))
    name = next((labels[label] for label in _JOB_LABELS if label in labels), None)
    if name is None and host and task and host.endswith(f"-{task}"):
        name = host.removesuffix(f"-{task}")
    return _job(
        "kubernetes",
        id=pod or host,
        task=task,
        name=name,
        queue=environment.get("POD_NAMESPACE") or _text(root / _NAMESPACE_FILE).strip(),
    )


def _text(path: Path) -> str:
    """Return the first ``_LONGEST_TEXT`` characters of a file; empty if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_TEXT)
    except OSError:
        return ""
