"""The picture of a plan."""

from pathlib import Path
from random import Random

from energy_callbacks.inference import pictures
from energy_callbacks.inference.planner.plan import Plan
from energy_callbacks.inference.planner.problem import Problem
from energy_callbacks.inference.planner.search import plan
from tests.inference.planner.synthetic import SyntheticGpu, random_gpu


def picture(tmp_path: Path, source: str) -> str:
    """Draw a plan for two models; return the SVG."""
    made = random_gpu(Random(2), 2, (1410.0,))
    gpu = SyntheticGpu(
        workloads=made.workloads, static_w={None: 40.0}, sigma_share=0.03, source=source
    )
    problem = Problem(models=("a", "b"), cap_w=150.0, batches=(4, 16, 64))
    found = plan(problem, gpu, additive=gpu)
    assert isinstance(found, Plan)
    path = tmp_path / "plan.svg"
    pictures.write(path, found, gpu)
    return path.read_text()


def test_a_picture_has_curves_front_and_plan(tmp_path: Path) -> None:
    """Each model has curves over its batch; the front, the cap and the plan are labelled."""
    svg = picture(tmp_path, "simulated")
    for words in ("batch of a", "batch of b", "samples/s", "front", "cap", ">plan<", "20 x 5 %"):
        assert words in svg


def test_pictures_of_simulated_data_are_labelled(tmp_path: Path) -> None:
    """The title says that data are simulated; it does not if they are measured."""
    assert ">simulated: plan for a, b under 150 W<" in picture(tmp_path, "simulated")
    assert "simulated" not in picture(tmp_path, "measured")
