"""Cards of the model with known parameters, for tests of the search."""

import numpy as np

from energy_callbacks.powercap.search.card_model import PARAMETERS, CardModel
from energy_callbacks.powercap.search.search import PowerSearch
from energy_callbacks.powercap.search.trial import Trial
from energy_callbacks.powercap.settings import Knob, KnobRange

LIMITS = KnobRange(knob="limit", lowest=200.0, highest=700.0, present=700.0, default=700.0)
STEP_S, CARD_W = 0.25, 700.0


def settings(knob: Knob, lowest: float, highest: float, *steps: float) -> KnobRange:
    """Return the range of a knob that is at its highest value."""
    return KnobRange(
        knob=knob, lowest=lowest, highest=highest, present=highest, default=highest, steps=steps
    )


class Card:
    """A card whose curve is that of the model with the mean parameters of the prior.

    Args:
        settings: its knob.
        cards: number of equal cards.
        noise: relative standard deviation of the noise of a window.
    """

    def __init__(self, settings: KnobRange, cards: int = 1, noise: float = 0.002) -> None:
        self._model = CardModel(settings, CARD_W * cards)
        self._noise = noise
        self._rng = np.random.default_rng(4)

    def truth(self, value: float) -> Trial:
        """Return time and energy of a step without noise."""
        log_s, log_j = self._model.log_curves(np.zeros((1, PARAMETERS)), np.array([value]))
        step_j = STEP_S * self._model.scale_w * np.exp(log_j[0, 0])
        return Trial(value=value, step_s=STEP_S * float(np.exp(log_s[0, 0])), step_j=float(step_j))

    def window(self, value: float) -> Trial:
        """Return a window with noise."""
        truth = self.truth(value)
        time, energy = np.exp(self._rng.normal(0.0, self._noise, size=2))
        return Trial(
            value=value,
            step_s=truth.step_s * time,
            step_j=truth.step_j * energy,
            step_s_stderr=self._noise * truth.step_s,
            step_j_stderr=self._noise * truth.step_j,
        )


def run(search: PowerSearch, card: Card) -> list[float]:
    """Run a search to its end and return the settings that it asked for."""
    asked: list[float] = []
    while (value := search.next_value()) is not None:
        assert len(asked) < 20
        asked.append(value)
        search.add(card.window(value))
    return asked
