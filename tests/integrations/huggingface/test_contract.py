"""Hugging Face's Trainer keeps the contract of all frameworks."""

import pytest

pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from tests.integrations.contract import Contract
from tests.integrations.huggingface.lab import HuggingFaceLab


class TestHuggingFace(Contract):
    """See ``tests/integrations/contract``."""

    lab = HuggingFaceLab()
