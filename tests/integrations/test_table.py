"""The table in docs/frameworks.md says what the contract tests, and no more."""

from tests.integrations.contract import PARTS
from tests.integrations.contract.reasons import REASONS
from tests.integrations.contract.table import COLUMNS, PAGE, page_with, situations, table
from tests.lanes import FRAMEWORKS


def test_the_page_holds_the_table_of_the_contract() -> None:
    """Where this fails: python -m tests.integrations.contract.table."""
    assert PAGE.read_text(encoding="utf-8") == page_with(table())


def test_every_reason_is_that_of_a_test() -> None:
    """A situation that was renamed does not leave its reason behind."""
    names = {name for part in PARTS for name in situations(part)}
    for framework, reasons in REASONS.items():
        assert set(reasons) <= names, framework


def test_every_framework_that_is_run_has_its_column() -> None:
    """The lanes of frameworks, the reasons and the columns are the same five."""
    assert {lane.name for lane in FRAMEWORKS} == set(COLUMNS)
    assert list(COLUMNS) == list(REASONS)
