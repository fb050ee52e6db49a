"""``python -m tests.integrations.notebook.breaking FRAMEWORK raises|catches``: a user's bug."""

import sys
from contextlib import suppress

from tests.integrations.notebook.kernel import Session, boom

if __name__ == "__main__":
    framework, end = sys.argv[1:]
    with suppress(*(() if end == "raises" else (RuntimeError,))):
        Session(framework).fit(boom)
