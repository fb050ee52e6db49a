"""Writes the schema of the report into the docs: ``python -m tests.report.write_schema``."""

import json

from energy_callbacks.report.model.schema import json_schema
from tests.report.model.test_schema import DOCUMENTED

if __name__ == "__main__":
    DOCUMENTED.write_text(json.dumps(json_schema(), indent=2) + "\n", encoding="utf-8")
