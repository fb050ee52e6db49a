"""Each test in an empty folder: without a TensorBoard callback the run folder is ./energy_runs."""

from pathlib import Path

import pytest

from tests.integrations.no_tensorflow import lean_keras

with lean_keras():
    pytest.importorskip("keras")

from tests.integrations.keras import two_devices
from tests.integrations.keras.training import BACKEND
from tests.lanes import FRAMEWORKS

# Where several backends run side by side: the one that runs what does not depend on it, and the one
# that runs long trainings such as those of the examples, of which torch traces no step.
_ONE, _FOR_LONG_TRAININGS = "torch", "jax"

# Their cases differ in what our meter meets, not in what Keras does: other backends run one each.
_OF_THE_METER = frozenset(
    {
        "test_a_faulty_gpu_changes_no_step_and_is_reported",
        "test_the_wall_clock_may_be_set",
        "test_no_driver_at_the_start",
        "test_codecarbon_may_raise",
        "test_the_disk_may_be_full",
        "test_only_the_profiler_that_fails_stops",
        "test_a_sensor_may_return_garbage",
        "test_a_logger_may_reject_energy_rows",
        "test_what_a_handler_of_sigterm_raises_ends_the_training",
        "test_ctrl_c_twice",
        "test_a_wrong_setting_raises_an_error_at_once",
        "test_a_handler_of_sigterm_that_exits_leaves_a_saved_report",
    }
)
# Callbacks of Keras that keep or write what is the backend's; the others only count and compare.
_OF_THE_BACKEND = frozenset(
    {"BackupAndRestore", "ModelCheckpoint", "SwapEMAWeights", "TensorBoard"}
)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Offer two devices, after the fork of the server: JAX starts threads for them."""
    two_devices.offer()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that do not depend on the backend with one backend only, if several run."""
    if not hasattr(config, "workerinput"):
        return
    lanes = config.workerinput["lanes"]
    backends = [one.environment.get("KERAS_BACKEND") for one in FRAMEWORKS if one.name in lanes]
    here = [item for item in items if _runs_here(item, [one for one in backends if one])]
    config.hook.pytest_deselected(items=[item for item in items if item not in here])
    items[:] = here


def _runs_here(item: pytest.Item, backends: list[str]) -> bool:
    if not item.path.is_relative_to(Path(__file__).parent):
        return True  # of another lane, whose process reads this file where both are named
    if item.get_closest_marker("every_backend") is not None:
        return _chosen(_ONE, backends) == BACKEND or not _is_another_case(item)
    one = _FOR_LONG_TRAININGS if item.path.name == "test_docs.py" else _ONE
    return _chosen(one, backends) == BACKEND


def _is_another_case(item: pytest.Item) -> bool:
    assert isinstance(item, pytest.Function)
    if item.originalname in _OF_THE_METER:
        return any(item.callspec.indices.values())
    if "stock" in item.callspec.params:
        return item.callspec.params["stock"].name not in _OF_THE_BACKEND
    return item.callspec.params.get("name") == "hung"  # by SIGTERM: the sensor, not Keras


def _chosen(backend: str, backends: list[str]) -> str:
    return backend if backend in backends else backends[-1]


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session", autouse=True, params=[BACKEND])
def backend(request: pytest.FixtureRequest) -> str:
    """Show the backend in the names of tests."""
    name: str = request.param
    return name


@pytest.fixture(scope="session", autouse=True)
def _steps_compile_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cache compiled JAX functions in files, because many trainings have the same steps."""
    if BACKEND != "jax":
        return
    import jax

    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
