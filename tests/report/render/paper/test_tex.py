"""Texts are escaped for LaTeX, and tables have the rules of booktabs."""

import pytest

from energy_callbacks.report.render.paper import tex
from tests.report.render.paper.latex_run import compiled


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("lr_1", r"lr\_1"),
        ("50 %", r"50~\%"),
        ("a & b", r"a \& b"),
        ("#1 ${x}", r"\#1 \$\{x\}"),
        ("a\\b", r"a\textbackslash{}b"),
        ("< 1 ± 2", r"\textless{} 1 $\pm$ 2"),
        ("~^", r"\textasciitilde{}\textasciicircum{}"),
        ("--batch", r"-{}-batch"),
        ("---", r"-{}-{}-"),
        ("模型", "??"),
        ("é ł", "é ł"),
        ("a\nb", "a b"),
    ],
)
def test_special_characters(text: str, latex: str) -> None:
    """Each character that is a command of LaTeX becomes its printed form."""
    assert tex.escaped(text) == latex


def test_every_character_compiles(tmp_path) -> None:
    """PdfLaTeX prints every character up to U+017F, alone and doubled, and beyond."""
    characters = [chr(code) for code in range(0x20, 0x180)] + ["模", "\u202e", "🙂"]
    body = "\n".join(f"x{tex.escaped(c)}y {tex.escaped(c + c)}\n" for c in characters)
    assert "Missing character" not in compiled(tmp_path, body)


def test_a_sign_is_a_minus_sign() -> None:
    """Hyphens before digits are minus signs, except inside words."""
    assert tex.signed("-1.5 % (-2 to +3), H-200") == r"$-$1.5~\% ($-$2 to +3), H-200"


def test_no_sources_no_citation() -> None:
    """A sentence without sources has no command."""
    assert tex.cite([]) == ""
    assert tex.cite(["a", "b", "a"]) == r"~\cite{a,b}"


def test_a_table_has_a_rule_between_blocks() -> None:
    """The head and each block are separated by rules."""
    table = tex.table("100 %", "tab:x", "lr", [[("", "n")], [("a", "1"), ("b", "2")]])
    lines = table.splitlines()
    rules = [line for line in lines if line.endswith("rule")]
    assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]
    assert lines[lines.index(r"\midrule") + 1] == r"a & 1 \tabularnewline"
    assert r"\caption{100~\%}" in lines
