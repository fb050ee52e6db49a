"""The documentation site has an entry for every public name.

``sphinx-build --fail-on-warning`` in ``.ci/run`` checks that every page is in the navigation.
"""

import ast
import re

import pytest

from tests.docs.pages import ROOT

API = "\n".join(page.read_text() for page in (ROOT / "docs/reference/api").glob("*.md"))
WHOLE_MODULES = re.findall(r"automodule:: (\S+)$", API, re.MULTILINE)
NAMED = re.findall(r"auto(?:class|function|data):: (\S+)$", API, re.MULTILINE)
PUBLIC = [
    "",
    "lightning",
    "keras",
    "huggingface",
    "profiling",
    "report",
    "compare",
    "powercap",
    "testing",
]


def names(module: str) -> list[str]:
    """Return the names of ``__all__``, or those that a module imports under the same name."""
    path = ROOT / "energy_callbacks" / module
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    tree = ast.parse(file.read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [name.name for node in imports for name in node.names if name.name == name.asname]


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_on_an_api_page(module: str) -> None:
    """Each name of a public module, or an error of the tree, is on a page of the API."""
    prefix = ".".join(filter(None, ["energy_callbacks", module]))
    errors = (ROOT / "energy_callbacks/core/errors.py").read_text()
    found = names(module)
    assert found
    for name in found:
        is_there = prefix in WHOLE_MODULES or any(
            entry.endswith(f".{name}") and entry.startswith(prefix) for entry in NAMED
        )
        assert is_there or f"class {name}(" in errors or name.startswith("__"), name
