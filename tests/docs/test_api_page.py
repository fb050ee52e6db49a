"""docs/api.md lists the public interface."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from energy_callbacks import EnergyMeter

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
MODULES = (
    "__init__", "lightning", "keras", "huggingface", "profiling/__init__", "report/__init__",
    "compare/__init__", "tuning/__init__", "powercap/__init__", "testing",
)  # fmt: skip


def exported(path: Path) -> Iterator[str]:
    """Yield the public names of a module, without importing it: frameworks take seconds."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.literal_eval(node.value)
        elif isinstance(node, ast.ImportFrom):  # "import x as x" exports x
            yield from (name.name for name in node.names if name.name == name.asname)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_on_the_page(module: str) -> None:
    """Names that a module exports are in the rows of this module."""
    name = ".".join(["energy_callbacks", *module.replace("__init__", "").strip("/").split("/")])
    rows = PAGE.partition(f"| `{name.rstrip('.')}` |")[2]
    rows = re.split(r"\n\| `energy_callbacks|\n\n", rows)[0]
    found = set(exported(ROOT / "energy_callbacks" / f"{module}.py")) - {"__version__"}
    assert found
    assert {one for one in found if f"`{one}`" not in rows} == set()


def test_every_method_of_the_meter_is_on_the_page() -> None:
    """The table of methods is complete, and has no method that does not exist."""
    table = PAGE.partition("## Methods of `EnergyMeter`")[2].partition("Callbacks have")[0]
    listed = set(re.findall(r"`([a-z_]+)`", table)) - {"with"}
    assert listed == {name for name in dir(EnergyMeter) if not name.startswith("_")} | {"config"}
