"""What the documentation shows of the Hugging Face Trainer."""

import pytest

pytest.importorskip("transformers")

from energy_callbacks.cli.demos import text_huggingface
from tests.integrations.documented import Demo, Documented


class TestDocs(Documented):
    framework = "huggingface"
    examples = ("huggingface_text.py",)
    demo = Demo(folder="huggingface/version_0", samples=360, curve="train/loss")

    def shorten_the_demo(self, patch: pytest.MonkeyPatch) -> None:
        """Use 400 sequences of the manual."""
        text = "\n".join(text_huggingface.topics.values())[: 400 * text_huggingface.SEQUENCE]
        patch.setattr(text_huggingface, "topics", {"some": text})
