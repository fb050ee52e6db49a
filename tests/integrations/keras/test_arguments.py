"""Settings that are wrong in themselves are refused at construction."""

from typing import Any

import keras
import pytest

from energy_callbacks import EnergyMeter
from energy_callbacks.keras import GpuEnergyCallback


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"update_freq": 0}, ValueError, "update_freq"),
        ({"update_freq": "step"}, ValueError, "'step'"),
        ({"update_freq": 2.5}, ValueError, "2.5"),
        ({"update_freq": True}, ValueError, "True"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"batch_size": "4"}, TypeError, "batch_size"),
        ({"batch_size": True}, TypeError, "batch_size"),
        ({"tokens_per_sample": -1}, ValueError, "tokens_per_sample"),
        ({"tokens_per_sample": float("inf")}, ValueError, "tokens_per_sample"),
        ({"tokens_per_sample": float("nan")}, ValueError, "tokens_per_sample"),
        ({"pue": 0.5}, ValueError, "pue"),
        ({"country": "DEU", "meter": EnergyMeter()}, ValueError, "meter="),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], kind: Any, message: str) -> None:
    """The message has the setting and its value."""
    with pytest.raises(kind, match=message):
        GpuEnergyCallback(**settings)


@pytest.mark.parametrize("update_freq", ["epoch", "batch", 1, 100])
def test_the_words_of_tensorboard_are_understood(update_freq: Any) -> None:
    """update_freq has the meaning of TensorBoard's callback."""
    expected = {"epoch": None, "batch": 1}.get(update_freq, update_freq)
    assert GpuEnergyCallback(update_freq=update_freq)._batches_per_row == expected


def test_positional_settings_are_refused() -> None:
    """All settings are keywords."""
    with pytest.raises(TypeError):
        GpuEnergyCallback("runs")


def test_a_class_instead_of_an_object_ends_fit() -> None:
    """Before the first step, with a message that says what to pass instead."""
    x = keras.ops.zeros((4, 2))
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(loss="mse")
    with pytest.raises(TypeError, match=r"needs an object.* as in GpuEnergyCallback\(\)"):
        model.fit(x, x, verbose=0, callbacks=[GpuEnergyCallback])
