"""The rules of the architecture, each with a proof that its check can fail."""

import ast
import inspect
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from grimp import ImportGraph, build_graph
from importlinter.api import read_configuration
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract
from importlinter.contracts.layers import LayersContract

import energy_callbacks

ROOT = Path(__file__).parents[1]
PYPROJECT = str(ROOT / "pyproject.toml")
CONTRACTS = {
    "layers": LayersContract,
    "forbidden": ForbiddenContract,
    "independence": IndependenceContract,
}
# Frameworks, heavy libraries and libraries that open devices: imported only when needed.
FORBIDDEN = (
    "torch", "lightning", "pytorch_lightning", "tensorflow", "keras", "jax", "transformers",
    "codecarbon", "pandas", "pynvml", "matplotlib", "pydantic", "rich", "tensorboard", "jinja2",
    "memory_profiler", "scipy",
)  # fmt: skip
LAYERS = "imports point down only"
NO_FRAMEWORK = "the core imports no framework and no adapter"
PACKAGES = (
    "energy_callbacks",
    "integrations/energy_callbacks_lightning",
    "integrations/energy_callbacks_keras",
    "integrations/energy_callbacks_huggingface",
)
# Modules, devices and threads of a process without any of these.
NOTHING: list[list[str]] = [[], [], []]
DEVICES = ("/dev/nvidia", "/dev/cpu", "/sys/class/powercap", "libnvidia-ml", "libcuda")


@pytest.fixture(scope="module")
def graph() -> ImportGraph:
    """Return the graph of imports, including imports inside functions."""
    packages = read_configuration(PYPROJECT)["session_options"]["root_packages"]
    return build_graph(*packages, include_external_packages=True, cache_dir=None)


def broken_contracts(graph: ImportGraph) -> list[str]:
    """Return the names of the contracts of ``pyproject.toml`` that an import graph breaks."""
    found = read_configuration(PYPROJECT)
    contracts = [
        CONTRACTS[options["type"]](options["name"], found["session_options"], options)
        for options in found["contracts_options"]
    ]
    # A check may change the graph that it gets.
    return [one.name for one in contracts if not one.check(deepcopy(graph), verbose=False).kept]


def test_imports_point_down_only(graph: ImportGraph) -> None:
    """Packages import only packages below them; the core imports no framework and no adapter."""
    assert broken_contracts(graph) == []


@pytest.mark.parametrize(
    ("importer", "imported", "contract"),
    [
        ("energy_callbacks.sensing.estimation.series", "energy_callbacks.meter", LAYERS),
        ("energy_callbacks.importers.samples", "energy_callbacks.report.build", LAYERS),
        ("energy_callbacks.report", "energy_callbacks.compare", LAYERS),
        ("energy_callbacks.core.units", "energy_callbacks.accounting.phases", LAYERS),
        ("energy_callbacks.accounting.metrics.step_counts", "torch", NO_FRAMEWORK),
        ("energy_callbacks.core.formatting", "energy_callbacks_keras", NO_FRAMEWORK),
        (
            "energy_callbacks_keras.loop",
            "energy_callbacks_lightning",
            "adapters do not know each other",
        ),
    ],
)
def test_the_check_of_imports_can_fail(
    graph: ImportGraph, importer: str, imported: str, contract: str
) -> None:
    """An additional forbidden import breaks its contract."""
    assert importer in graph.modules
    changed = deepcopy(graph)
    changed.add_import(importer=importer, imported=imported)
    assert contract in broken_contracts(changed)


def test_an_import_inside_of_a_function_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph contains libraries that are imported inside functions."""
    package = tmp_path / "package_of_the_test"
    package.mkdir()
    (package / "__init__.py").write_text("def f():\n    import torch\n")
    monkeypatch.syspath_prepend(tmp_path)
    graph = build_graph(package.name, include_external_packages=True, cache_dir=None)
    assert graph.direct_import_exists(importer=package.name, imported="torch")


PROBE = """
import sys, threading
touched = []
def watch(event, args):
    if event in ("open", "ctypes.dlopen", "os.listdir", "subprocess.Popen", "socket.connect"):
        touched.append(str(args[0]))
sys.addaudithook(watch)
for action in ("from energy_callbacks import EnergyMeter", *sys.argv[1:]):
    exec(action)
    names = {name.partition(".")[0] for name in sys.modules}
    modules = [name for name in FORBIDDEN if name in names]
    devices = [path for path in touched if any(device in path for device in DEVICES)]
    threads = [thread.name for thread in threading.enumerate() if thread.name != "MainThread"]
    print([modules, devices, threads])
"""


def costs(*actions: str) -> list[list[list[str]]]:
    """Return forbidden modules, opened devices and threads of a process after each action.

    The first entry is after ``from energy_callbacks import EnergyMeter``.
    """
    program = f"FORBIDDEN, DEVICES = {FORBIDDEN}, {DEVICES}\n{PROBE}"
    answer = subprocess.run(
        [sys.executable, "-c", program, *actions],
        capture_output=True, text=True, check=True, timeout=600.0, cwd=ROOT,
    )  # fmt: skip
    return [ast.literal_eval(line) for line in answer.stdout.splitlines()]


def test_the_import_and_making_a_meter_are_light() -> None:
    """Before ``start`` no framework or heavy library is imported, no device and thread opened."""
    assert costs("EnergyMeter()") == [NOTHING, NOTHING]


def test_the_check_of_the_import_can_fail() -> None:
    """The check above detects an opened device, a thread and a heavy import."""
    found = costs(
        "try: open('/dev/nvidia-probe')\nexcept OSError: pass",
        "import ctypes\ntry: ctypes.CDLL('libnvidia-ml.so.1')\nexcept OSError: pass",
        "from threading import *\nThread(target=Event().wait, name='t', daemon=True).start()",
        "import matplotlib",
    )
    devices = ["/dev/nvidia-probe", "libnvidia-ml.so.1"]
    assert found == [
        NOTHING,
        [[], devices[:1], []],
        [[], devices, []],
        [[], devices, ["t"]],
        [["matplotlib"], devices, ["t"]],
    ]


def test_all_is_what_is_exported() -> None:
    """``__all__`` names every public name of the package and the version, and no other."""
    public = [
        name
        for name, value in vars(energy_callbacks).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    ]
    assert sorted([*public, "__version__"]) == sorted(energy_callbacks.__all__)
    assert len(set(energy_callbacks.__all__)) == len(energy_callbacks.__all__)


def test_public_names_show_the_path_that_users_type() -> None:
    """Every exported class can be found in the module that it names."""
    for name in set(energy_callbacks.__all__) - {"__version__"}:
        value = getattr(energy_callbacks, name)
        assert getattr(sys.modules[value.__module__], name) is value
        assert value.__doc__


def modules_of(*folders: str) -> list[Path]:
    """Return all modules below some folders, relative to the repository."""
    found = [path for name in folders for path in (ROOT / name).rglob("*.py")]
    assert len(found) > len(folders)
    return [path.relative_to(ROOT) for path in found]


def test_adapters_stay_thin() -> None:
    """Adapters translate events; code that does not need a framework belongs in the core."""
    modules = modules_of(*PACKAGES[1:])
    assert len(modules) >= 50
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in modules}
    assert {path: length for path, length in lengths.items() if length >= 200} == {}


def circle_in(graph: ImportGraph) -> list[str]:
    """Return modules that import each other in a circle, or an empty list.

    Importing a module runs its packages first, so it counts as importing those packages, too.
    """

    def imported_by(importer: str) -> set[str]:
        found: set[str] = set()
        for module in graph.find_modules_directly_imported_by(importer):
            parts = module.split(".")
            found |= {".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        # A package that contains the importer is running already.
        return {one for one in found if not f"{importer}.".startswith(f"{one}.")}

    try:
        TopologicalSorter({one: imported_by(one) for one in graph.modules}).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        return found
    return []


def test_no_modules_import_each_other_in_a_circle(graph: ImportGraph) -> None:
    """Imports inside functions and for type checking count too."""
    assert circle_in(graph) == []


def test_the_check_of_circles_can_fail(graph: ImportGraph) -> None:
    """An additional import in the opposite direction is reported as a circle."""
    changed = deepcopy(graph)
    changed.add_import(
        importer="energy_callbacks.core.units", imported="energy_callbacks.core.formatting"
    )
    assert "energy_callbacks.core.units" in circle_in(changed)


@pytest.mark.parametrize(("folders", "limit"), [(PACKAGES, 15), (("tests",), 25)])
def test_no_folder_is_crowded(folders: tuple[str, ...], limit: int) -> None:
    """No folder has more modules than the limit; ``__init__.py`` does not count."""
    counts = Counter(path.parent for path in modules_of(*folders) if path.name != "__init__.py")
    assert {folder: count for folder, count in counts.items() if count > limit} == {}
