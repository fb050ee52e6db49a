"""Tests that the table in docs/frameworks.md matches the contract tests."""

from tests.integrations.contract import PARTS
from tests.integrations.contract.reasons import REASONS
from tests.integrations.contract.table import COLUMNS, PAGE, page_with, situations, table
from tests.lanes import FRAMEWORKS


def test_the_page_holds_the_table_of_the_contract() -> None:
    """If this fails, run ``python -m tests.integrations.contract.table``."""
    assert PAGE.read_text(encoding="utf-8") == page_with(table())


def test_every_reason_is_that_of_a_test() -> None:
    """Every reason names an existing test, so renaming a test cannot leave an old reason."""
    names = {name for part in PARTS for name in situations(part)}
    for framework, reasons in REASONS.items():
        assert set(reasons) <= names, framework


def test_every_framework_that_is_run_has_its_column() -> None:
    """The lanes, the reasons and the columns of the table name the same frameworks."""
    assert {lane.name for lane in FRAMEWORKS} == set(COLUMNS)
    assert list(COLUMNS) == list(REASONS)
