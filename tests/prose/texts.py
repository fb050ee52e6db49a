"""Finds the prose of the repository: pages of the documentation, and strings in the source.

A text has as many lines as its file, and each word is on its line of the file. Code, links and
markup are blank.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ("energy_callbacks", "integrations")

# Code, targets of links, comments of pages, table rules, and directives of the documentation site.
_NOT_PROSE = re.compile(
    r"^ *```.*?^ *```|`[^`\n]*`|\]\([^)\n]*\)|<!--.*?-->|^[|: -]+$|https?://\S+",
    re.DOTALL | re.MULTILINE,
)
_TEMPLATE = re.compile(r"<(script|style)\b.*?</\1>|\{[{%#].*?[}%#]\}|<[^>]*>|&\w+;", re.DOTALL)
# A string with a blank between two words is prose; others are names, keys and formats.
_WORDS = re.compile(r"[A-Za-z]{2,},? [A-Za-z]{2,}")
# Statements of SQL, and lists of fonts.
_CODE = re.compile(r"\b(?:SELECT|CREATE) |sans-serif")


def all_texts() -> Iterator[tuple[Path, str]]:
    """Return the path of each file with prose, and its prose."""
    pages = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        if page.parent.name == "adr":  # accepted decisions are not edited
            continue
        yield page, of_markdown(page.read_text(encoding="utf-8"))
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, of_source(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / folder).rglob("*.html")):
            yield path, of_template(path.read_text(encoding="utf-8"))


def of_markdown(text: str) -> str:
    """Return the prose of a Markdown page."""
    return _NOT_PROSE.sub(_blank, text)


def of_template(text: str) -> str:
    """Return the prose of a template of HTML."""
    return _TEMPLATE.sub(_blank, text)


def of_source(code: str) -> str:
    """Return the prose in the strings of Python code, except its docstrings.

    Values inside f-strings are written as ``_``. Adjacent strings, which Python joins, become one.
    """
    lines = [""] * (code.count("\n") + 2)
    for node in _strings(ast.parse(code)):
        text = _value(node)
        if _WORDS.search(text) and not _CODE.search(text):
            lines[node.lineno] += of_markdown(" ".join(text.split())) + "\n"
    return "\n".join(line.replace("\n", ". ") for line in lines[1:])


def _strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Return the strings of a syntax tree that are not docstrings and not parts of others."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.JoinedStr) or (
            isinstance(child, ast.Constant) and isinstance(child.value, str)
        ):
            if not isinstance(tree, ast.Expr):  # a docstring
                yield child
        else:
            yield from _strings(child)


def _value(node: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else "§" for part in node.values
    )


def _blank(found: re.Match[str]) -> str:
    """Return the line breaks of a match, or a placeholder of its length."""
    text = found[0]
    return "\n" * text.count("\n") if "\n" in text else "§" * len(text)
