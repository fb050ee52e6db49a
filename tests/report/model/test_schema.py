"""The report's JSON reads back unchanged, has a version, and matches the schema in the docs."""

import json
import math
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from energy_callbacks.core.errors import JournalError
from energy_callbacks.report.build import build
from energy_callbacks.report.model.schema import SCHEMA_VERSION, from_json, json_schema, to_json
from tests.report.journals import Attempt, write

DOCUMENTED = Path(__file__).parents[3] / "docs" / "reference" / "report.schema.json"


def test_a_report_reads_back_as_itself(report):
    """Every field survives the way through JSON."""
    assert from_json(to_json(report)) == report


def test_a_report_without_any_device_reads_back_as_itself(tmp_path):
    """None stays None."""
    write(tmp_path, Attempt(devices=()))
    report = build(tmp_path)
    assert from_json(to_json(report)) == report


def test_warnings_come_before_all_figures(report):
    """Who reads the file from the top meets the warnings first."""
    names = list(json.loads(to_json(report)))
    assert names.index("warnings") < names.index("run") < names.index("energy")


def test_the_json_is_strict(report):
    """No NaN and no infinity, which other readers refuse."""
    json.loads(to_json(report), parse_constant=pytest.fail)


def test_a_report_is_valid_by_its_own_schema(report):
    """An independent validator agrees, and refuses a report with a word for a number."""
    value = json.loads(to_json(report))
    validator = Draft202012Validator(json_schema())
    assert list(validator.iter_errors(value)) == []
    value["run"]["duration_s"] = "long"
    assert [error.json_path for error in validator.iter_errors(value)] == ["$.run.duration_s"]


def test_the_schema_in_the_docs_is_that_of_the_code():
    """Where this fails: python -m tests.report.write_schema."""
    assert json.loads(DOCUMENTED.read_text(encoding="utf-8")) == json_schema()


def test_a_newer_schema_is_refused_with_what_to_do(report):
    """A report of the next version asks for an upgrade."""
    value = json.loads(to_json(report)) | {"schema_version": SCHEMA_VERSION + 1}
    with pytest.raises(
        JournalError, match=r"schema version 2, .* up to 1; run: .*pip install --upgrade"
    ):
        from_json(json.dumps(value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("not json", "no JSON at line 1"),
        ("[]", "got 'list'"),
        ('{"format": "codecarbon"}', "got 'codecarbon'"),
    ],
)
def test_a_foreign_file_is_refused_with_what_was_found(text, words):
    """The message says what stands there and what to give instead."""
    with pytest.raises(JournalError, match=words) as caught:
        from_json(text)
    assert "give an energy_report.json" in str(caught.value)


def test_a_damaged_report_names_the_field(report):
    """A figure that is a word: the message leads to it."""
    value = json.loads(to_json(report))
    value["energy"]["gpu"]["energy_j"] = "much"
    with pytest.raises(JournalError, match=r"damaged: energy\.gpu\.energy_j: .*'much'"):
        from_json(json.dumps(value))


def test_the_error_of_a_figure_is_its_95_percent_interval(report):
    """1.96 standard errors and the systematic bound, in quadrature."""
    figure = report.energy.gpu
    assert figure.error_j == pytest.approx(math.hypot(1.96, 316.0))
