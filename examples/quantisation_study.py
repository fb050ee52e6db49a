"""What a prediction costs, float and int8: energy, emissions and accuracy side by side.

python examples/quantisation_study.py --country DEU --repeats 5 --seconds 10

Whether int8 saves anything depends on the kernels that a backend has for it: on CPUs Keras' JAX
backend gains, TensorFlow and torch lose. So measure where you serve.
"""

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

if find_spec("jax"):
    os.environ.setdefault("KERAS_BACKEND", "jax")

import keras
import numpy as np
from sklearn.datasets import load_digits

from energy_callbacks import EnergyConfig, EnergyMeter
from energy_callbacks.compare import compare
from energy_callbacks.report import EnergyReport

BATCH = 256


def trained(inputs: np.ndarray, labels: np.ndarray, units: int) -> keras.Model:
    """A network of two hidden layers with so many units each."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(units, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer="adam", loss=loss)
    model.fit(inputs, labels, batch_size=64, epochs=4, verbose=0)
    return model


def quantised(model: keras.Model) -> keras.Model:
    """A copy whose dense layers multiply in int8."""
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    copy.quantize("int8")
    return copy


def predicted(model: keras.Model, batch: np.ndarray, batches: int, folder: Path, place: str | None):
    """The report of so many predictions."""
    config = EnergyConfig(report_dir=folder, run_name=folder.parent.name, country=place)
    with EnergyMeter(config=config) as meter, meter.phase("predict"):
        for _ in range(batches):
            model.predict_on_batch(batch)
        report = meter.report
    return report()


def per_thousand(reports: list[EnergyReport], predictions: int) -> str:
    """Mean energy and emissions of a thousand predictions."""
    share = 1000.0 / predictions / len(reports)
    energies = [report.energy.total.energy_j for report in reports]
    if None in energies:
        return "energy not known"
    said = f"{sum(energies) * share / 3600.0 * 1e3:.3g} mWh"
    emissions = [report.emissions for report in reports if report.emissions is not None]
    if len(emissions) < len(reports):
        return said
    if None in [one.kg for one in emissions]:
        low, high = (sum(getattr(one, end) for one in emissions) for end in ("low_kg", "high_kg"))
        return f"{said}, {low * share * 1e6:.3g} to {high * share * 1e6:.3g} mgCO2e"
    return f"{said}, {sum(one.kg for one in emissions) * share * 1e6:.3g} mgCO2e"


def main() -> None:
    """Train once, predict in turn, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a run, in float")
    # So many that the matrix products count.
    parser.add_argument("--units", type=int, default=2048, help="of each hidden layer")
    parser.add_argument("--country", help="for emissions")
    parser.add_argument("--out", type=Path, default=Path("quantisation_study"))
    arguments = parser.parse_args()

    digits = load_digits()
    inputs, labels = digits.data.astype("float32"), digits.target
    half = len(inputs) // 2
    model = trained(inputs[:half], labels[:half], arguments.units)
    models = {"float32": model, "int8": quantised(model)}
    batch = inputs[:BATCH]
    for one in models.values():
        one.predict_on_batch(batch)  # compiled now, not while it is measured
    started = time.monotonic()
    for _ in range(10):
        model.predict_on_batch(batch)
    batches = max(round(arguments.seconds / ((time.monotonic() - started) / 10)), 1)

    reports: dict[str, list[EnergyReport]] = {name: [] for name in models}
    for repeat in range(arguments.repeats):
        for name in list(models)[:: 1 if repeat % 2 == 0 else -1]:
            folder = arguments.out / name / str(repeat)
            found = predicted(models[name], batch, batches, folder, arguments.country)
            reports[name].append(found)
    for name, one in models.items():
        answers = np.asarray(one.predict(inputs[half:], batch_size=BATCH, verbose=0)).argmax(axis=1)
        accuracy = (answers == labels[half:]).mean()
        cost = per_thousand(reports[name], batches * BATCH)
        print(f"{name:8} {accuracy:.4f} accuracy, a thousand predictions: {cost}")
    comparison = compare(reports)
    print(comparison)
    comparison.save(arguments.out)


if __name__ == "__main__":
    main()
