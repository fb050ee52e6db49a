"""The documentation site: ``python -m pip install '.[docs]' && sphinx-build docs site``.

``.ci/run`` builds it with ``--fail-on-warning``. Why Sphinx: ``docs/adr/0046-*.md``. The pages are
Markdown, so they can be read in the repository as well.
"""

import os
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "integrations")]

project = "energy_callbacks"
author = "The energy_callbacks authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Headings have the anchors that code hosts give them.
myst_heading_anchors = 4

os.environ.setdefault("KERAS_BACKEND", "torch")  # the smallest that an adapter has anyway
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = "energy_callbacks"
html_show_sphinx = False
html_copy_source = False


# Files in the root of the repository are pages of the site, which include them.
_ROOT_LINK = re.compile(r"\]\((?:\.\./)?(CONTRIBUTING|CHANGELOG|SECURITY)\.md")


def setup(app: Sphinx) -> None:
    """Lead links to files in the root of the repository to the pages that include them."""

    def relink(*event: object) -> None:
        content = event[-1]
        assert isinstance(content, list)
        content[0] = _ROOT_LINK.sub(lambda found: f"]({found[1].lower()}.md", content[0])

    app.connect("source-read", relink)
    app.connect("include-read", relink)
