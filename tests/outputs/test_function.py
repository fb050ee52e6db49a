"""Scalars are passed to a function of the user."""

import pytest

from energy_callbacks.outputs.function import FunctionOutput


def test_the_function_gets_scalars_and_step() -> None:
    """One call per row, with a new dict."""
    calls: list[tuple[dict[str, float], int]] = []
    output = FunctionOutput(lambda scalars, step: calls.append((scalars, step)))
    scalars = {"power/gpu_w": 200.0}
    output.write(scalars, 7, 0.0)
    scalars.clear()
    output.close()
    output.close()
    assert calls == [({"power/gpu_w": 200.0}, 7)]


def test_something_that_cannot_be_called_is_refused() -> None:
    """The message shows a correct call."""
    with pytest.raises(TypeError, match=r"got 'print'; write FunctionOutput\(lambda"):
        FunctionOutput("print")  # type: ignore[arg-type]
