"""``python -m tests.integrations.notebook.breaking FRAMEWORK raises|catches``: a user's bug."""

import sys
from contextlib import suppress
from pathlib import Path

from tests.integrations.notebook.kernel import Session, boom

if __name__ == "__main__":
    framework, end = sys.argv[1:]
    session = Session(framework)
    try:
        with suppress(*(() if end == "raises" else (RuntimeError,))):
            session.fit(boom)
    finally:
        Path("fit_s").write_text(f"{session.fit_s}")
