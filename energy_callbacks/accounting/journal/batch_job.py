"""Which job of a batch system this process belongs to: Slurm, HTCondor or Kubernetes.

What each says of itself, and where:

* Slurm: variables (sbatch(1), "OUTPUT ENVIRONMENT VARIABLES"); a task of an array has an id of its
  own, and is called ``<array>_<task>`` by squeue and sacct.
* HTCondor: ``_CONDOR_JOB_AD`` names a file of lines ``Name = value`` (users' manual, "Services for
  Running Jobs").
* Kubernetes: ``KUBERNETES_SERVICE_HOST`` is in every container; its host name is that of the pod,
  or ``<job>-<index>`` if an Indexed Job runs (concepts, "Jobs" and "Downward API"). Variables
  and the file of labels are those of the examples in its documentation.

A scheduler inside another (a Slurm that runs in pods) is the one that knows the job, so Kubernetes
is asked last.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

_NAMESPACE_FILE: Final = "var/run/secrets/kubernetes.io/serviceaccount/namespace"
_LABELS_FILE: Final = "etc/podinfo/labels"
_JOB_LABELS: Final = (
    "batch.kubernetes.io/job-name",
    "job-name",
    "training.kubeflow.org/job-name",
)
# Of one identity, in characters, and of a file: what is longer is none.
_LONGEST, _LARGEST_FILE_BYTES = 200, 1_000_000
_TITLES: Final = {"slurm": "Slurm", "htcondor": "HTCondor", "kubernetes": "Kubernetes"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job as its batch system names it; ``None`` is what it does not say.

    Attributes:
        system: whose job it is: ``slurm``, ``htcondor`` or ``kubernetes``.
        id: ``SLURM_JOB_ID``, ``ClusterId.ProcId``, or the name of the pod.
        array_id: of the whole array, or the cluster of HTCondor.
        task: number within it; of an Indexed Job its completion index.
        name: of the job; of Kubernetes the Job that the pod belongs to.
        account: that it is charged to.
        queue: partition of Slurm, namespace of Kubernetes.
        cluster: name of the cluster; the schedd of HTCondor.
        slot: of HTCondor.
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
        """For people.

        >>> Job(system="slurm", id="78", array_id="77", task="1", name="train", queue="gpu").label
        'Slurm job 77_1, train, in gpu'
        """
        words = [
            _TITLES.get(self.system, self.system),
            "pod" if self.system == "kubernetes" else "job",
        ]
        is_task = self.system == "slurm" and self.array_id is not None and self.task is not None
        found = f"{self.array_id}_{self.task}" if is_task else self.id
        parts = [" ".join([*words, found] if found else words)]
        parts += [self.name] if self.name else []
        place = "/".join(part for part in (self.cluster, self.queue) if part)
        return ", ".join([*parts, f"in {place}"] if place else parts)


def identity(environment: Mapping[str, str], root: Path = Path("/")) -> Job | None:
    """The job of a process with these variables; ``None`` outside any batch system.

    Args:
        environment: of the process.
        root: of its file system.
    """
    found = _slurm(environment) or _htcondor(environment) or _kubernetes(environment, root)
    return found and replace(
        found,
        **{
            name: value[:_LONGEST]
            for name in Job.__dataclass_fields__
            if name != "system" and (value := getattr(found, name)) is not None
        },
    )


def from_record(record: Any) -> Job | None:
    """The job in the header of a journal; ``None`` if there is none."""
    if not isinstance(record, Mapping) or not record.get("system"):
        return None
    names = Job.__dataclass_fields__
    return Job(**{k: str(v) for k, v in record.items() if k in names and v is not None})


def _slurm(environment: Mapping[str, str]) -> Job | None:
    if not environment.get("SLURM_JOB_ID"):
        return None

    def said(name: str) -> str | None:
        return environment.get(f"SLURM_{name}") or None

    return Job(
        system="slurm",
        id=said("JOB_ID"),
        array_id=said("ARRAY_JOB_ID"),
        task=said("ARRAY_TASK_ID"),
        name=said("JOB_NAME"),
        user=said("JOB_USER"),
        account=said("JOB_ACCOUNT"),
        queue=said("JOB_PARTITION"),
        cluster=said("CLUSTER_NAME"),
    )


def _htcondor(environment: Mapping[str, str]) -> Job | None:
    path, slot = environment.get("_CONDOR_JOB_AD"), environment.get("_CONDOR_SLOT")
    if not path and not slot:
        return None
    ad = _attributes(_text(Path(path)) if path else "")
    array_id, task = ad.get("clusterid"), ad.get("procid")
    return Job(
        system="htcondor",
        id=f"{array_id}.{task}" if array_id and task else None,
        array_id=array_id,
        task=task,
        name=ad.get("jobbatchname"),
        user=ad.get("owner"),
        account=ad.get("accountinggroup") or ad.get("acctgroup"),
        # <schedd>#<cluster>.<proc>#<time>
        cluster=ad.get("globaljobid", "").partition("#")[0] or None,
        slot=slot or None,
    )


def _attributes(ad: str) -> dict[str, str]:
    r"""Those of a ClassAd that are numbers or strings, by their names in lower case.

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
    host = environment.get("HOSTNAME") or None
    task = environment.get("JOB_COMPLETION_INDEX") or None
    named = environment.get("POD_NAME") or environment.get("KUBERNETES_POD_NAME")
    labels = dict(re.findall(r'^([^="]+)="(.*)"$', _text(root / _LABELS_FILE), re.MULTILINE))
    name = next((labels[label] for label in _JOB_LABELS if label in labels), None)
    if name is None and host and task and host.endswith(f"-{task}"):
        name = host.removesuffix(f"-{task}")
    return Job(
        system="kubernetes",
        id=named or host,
        task=task,
        name=name,
        queue=environment.get("POD_NAMESPACE") or _text(root / _NAMESPACE_FILE).strip() or None,
    )


def _text(path: Path) -> str:
    """The text of a small file; empty if it cannot be read."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_FILE_BYTES)
    except OSError:
        return ""
