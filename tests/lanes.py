"""Lanes: processes that run the tests side by side.

A framework takes seconds to import, and Keras knows one backend per process. So the tests of each
framework, and of each backend of Keras, have a process of their own that imports it once. A lane is
such a process; which tests it runs follows from the folder they are in. ``python -m pytest`` runs
all lanes, two more at a time than there are processors. Where the arguments name tests of one lane
only, they run in the process of pytest itself, as without this file.
"""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[1]
INTEGRATIONS = Path("tests/integrations")
ONE_THREAD = {"OMP_NUM_THREADS": "1"}  # lanes side by side would wait for each other's threads
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
        folders: what it runs, relative to the repository.
        packages: without which it is left out.
        environment: what it sets before it imports anything.
        has_tensorflow: whether TensorBoard may import it, which takes seconds.
    """

    name: str
    folders: tuple[Path, ...] = ()
    packages: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    has_tensorflow: bool = True

    @property
    def roots(self) -> list[Path]:
        """Where its folders are."""
        return [ROOT / folder for folder in self.folders]

    @property
    def is_installed(self) -> bool:
        """Whether its packages are there."""
        return all(find_spec(package) is not None for package in self.packages)


def _framework(name: str, *packages: str) -> Lane:
    return Lane(
        name=name,
        folders=(INTEGRATIONS / name,),
        packages=packages,
        environment=dict(QUIET),
        has_tensorflow=False,
    )


def _keras(backend: str, **environment: str) -> Lane:
    return Lane(
        name=f"keras-{backend}",
        folders=(INTEGRATIONS / "keras",),
        # The TensorBoard callback of Keras writes with TensorFlow on every backend.
        packages=tuple(dict.fromkeys(("keras", "tensorflow", backend))),
        environment=QUIET | {"KERAS_BACKEND": backend} | environment,
    )


# Tests that start commands and wait for them.
_COMMANDS = ("tests/cli", "tests/matrix", "tests/integrations/notebook", "tests/test_crash.py")
# Everything that is in no other lane.
CORE = Lane(name="core", environment=dict(ONE_THREAD))
COMMANDS = Lane(name="commands", folders=tuple(map(Path, _COMMANDS)), environment=dict(QUIET))
FRAMEWORKS = (
    # Compiling a step takes longer than these trainings.
    _keras("jax", JAX_DISABLE_MOST_OPTIMIZATIONS="1"),
    _framework("huggingface", "transformers", "accelerate", "torch"),
    _keras("tensorflow"),
    _framework("lightning", "lightning"),
    _keras("torch"),
)
# Longest first: the lanes that begin last should be short.
LANES = (CORE, COMMANDS, *FRAMEWORKS)


def lanes_of(path: Path) -> list[Lane]:
    """The lanes that run the tests in a file or anywhere below a folder."""
    path = path.resolve()
    special = (COMMANDS, *FRAMEWORKS)
    inside = [lane for lane in special if any(map(path.is_relative_to, lane.roots))]
    below = [lane for lane in special if any(one.is_relative_to(path) for one in lane.roots)]
    return inside or [CORE, *below]
