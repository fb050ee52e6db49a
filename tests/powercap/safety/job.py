"""A job that changes limits of cards: ``job.py FOLDER KIND ENDING VALUE UUID...``.

It prints ``changed``, and then reads a line before it ends as ``ENDING`` says.
"""

import os
import sys
from pathlib import Path
from types import ModuleType

# The package without its public names, which need NumPy: the job starts in a fifth of the time.
_package = ModuleType("energy_callbacks")
_package.__path__ = [str(Path(__file__).parents[3] / "energy_callbacks")]
sys.modules["energy_callbacks"] = _package

from energy_callbacks.powercap.safety.changed_cards import ChangedCards  # noqa: E402
from energy_callbacks.powercap.settings import Setting  # noqa: E402
from tests.powercap.safety.file_cards import ACTUATORS  # noqa: E402


def main(folder: str, kind: str, ending: str, value: str, *uuids: str) -> None:
    """Change the limit of the cards, and end."""
    cards = ChangedCards(ACTUATORS[kind](), uuids, allow_changes=True, folder=Path(folder))
    cards.set(Setting(knob="limit", value=float(value)))
    if ending == "forks" and not os.fork():  # a worker that outlives the job, as a hung loader does
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        sys.stdin.readline()
        cards.restore()  # does nothing, as this is a copy
        os._exit(0)
    print("changed", cards._watchdog and cards._watchdog.pid, flush=True)
    sys.stdin.readline()
    if ending == "raises":
        with cards:
            raise RuntimeError("the training failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
