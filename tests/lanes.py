"""Lanes: processes that run the tests in parallel.

A framework takes seconds to import, and Keras supports one backend per process. So the tests of
each framework, and of each backend of Keras, run in a process of their own that imports it once.
Such a process is called a lane; the folder of a test decides its lane. ``python -m pytest`` runs
all lanes, two more at a time than there are processors. If the arguments name tests of one lane
only, they run in the process of pytest itself, as without this file.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTEGRATIONS = Path("tests/integrations")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # threads of parallel lanes would wait for each other
QUIET = ONE_THREAD | {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One process of tests.

    Attributes:
        name: shown by pytest.
        folders: of its tests, relative to the repository.
        packages: the lane is skipped if one of them is not installed.
        environment: variables that it sets before it imports anything.
        has_tensorflow: whether TensorBoard may import TensorFlow, which takes seconds.
    """

    name: str
    folders: tuple[Path, ...] = ()
    packages: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    has_tensorflow: bool = False

    @property
    def roots(self) -> list[Path]:
        """Return the paths of its folders."""
        return [ROOT / folder for folder in self.folders]

    @property
    def is_installed(self) -> bool:
        """Return whether its packages are installed."""
        return all(find_spec(package) is not None for package in self.packages)


def _framework(name: str, *packages: str) -> Lane:
    return Lane(
        name=name,
        folders=(INTEGRATIONS / name,),
        packages=packages,
        environment=dict(QUIET),
    )


def _keras(backend: str, **environment: str) -> Lane:
    return Lane(
        name=f"keras-{backend}",
        folders=(INTEGRATIONS / "keras",),
        # The TensorBoard callback of Keras writes with TensorFlow on every backend.
        packages=tuple(dict.fromkeys(("keras", "tensorflow", backend))),
        environment=QUIET | {"KERAS_BACKEND": backend} | environment,
        has_tensorflow=True,
    )


# Tests that start commands and wait for them.
_COMMANDS = ("tests/cli", "tests/matrix", "tests/integrations/notebook", "tests/test_crash.py")
_REPORTS = ("tests/compare", "tests/docs", "tests/golden", "tests/report", "tests/report_process")
# Builds the wheel, and runs the package without most of its dependencies.
RELEASE = Lane(name="release", folders=(Path("tests/release"),), environment=dict(QUIET))
# All tests that belong to no other lane.
CORE = Lane(name="core", environment=dict(ONE_THREAD))
# Two lanes without a framework, so that no lane takes much longer than the others.
INFERENCE = Lane(name="inference", folders=(Path("tests/inference"),), environment=dict(ONE_THREAD))
REPORTS = Lane(name="reports", folders=tuple(map(Path, _REPORTS)), environment=dict(ONE_THREAD))
COMMANDS = Lane(name="commands", folders=tuple(map(Path, _COMMANDS)), environment=dict(QUIET))
FRAMEWORKS = (
    # Compiling a step takes longer than these trainings.
    _keras("jax", JAX_DISABLE_MOST_OPTIMIZATIONS="1"),
    _framework("huggingface", "transformers", "accelerate", "torch"),
    _keras("tensorflow"),
    _framework("lightning", "lightning"),
    _keras("torch"),
)
# Longest first, so that the lanes that begin last are short.
LANES = (CORE, REPORTS, COMMANDS, INFERENCE, *FRAMEWORKS, RELEASE)


def lanes_of(path: Path) -> list[Lane]:
    """Return the lanes that run the tests in a file or below a folder."""
    path = path.resolve()
    special = [lane for lane in LANES if lane is not CORE]
    inside = [lane for lane in special if any(map(path.is_relative_to, lane.roots))]
    below = [lane for lane in special if any(one.is_relative_to(path) for one in lane.roots)]
    return inside or [CORE, *below]
