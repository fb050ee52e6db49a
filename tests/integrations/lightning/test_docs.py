"""What the documentation shows of Lightning."""

import pytest

pytest.importorskip("lightning")

from tests.integrations.documented import Demo, Documented


class TestDocs(Documented):
    framework = "lightning"
    examples = ("lightning_digits.py",)
    demo = Demo(folder="lightning_logs/version_0", samples=1438, curve="train_loss")
