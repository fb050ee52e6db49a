"""Fits windows of a GPU, predicts configurations that were not measured, and writes JSON."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from energy_callbacks.core import atomic_files
from energy_callbacks.inference.predictor import json_file, outputs, physics, predictions, rows
from energy_callbacks.inference.predictor.held_out import HeldOut, held_out
from energy_callbacks.inference.predictor.physics import Scales
from energy_callbacks.inference.predictor.residual import Residual, fitted
from energy_callbacks.inference.predictor.rows import Array, Rows
from energy_callbacks.inference.records import (
    Configuration,
    MeasuredWindow,
    Prediction,
    Source,
)

# A prior from another card is narrower than that of an unknown model: its parameters are in units
# of typical times and energies, and describe the model more than the card.
_TRANSFER: Final = 0.5
_LEAST: Final = 3


@dataclass(frozen=True, kw_only=True)
class Predictor:
    """A fitted predictor.

    Attributes:
        models: the models that were measured.
        identity: ``gpu_name``, ``dataset``, ``mode`` and ``mem_mhz`` of all windows.
        source: where the windows come from.
        reference_mhz: the largest clock of the windows; ``None`` if it is unknown.
        scales: units of the parameters.
        means: means of the prior of all parameters.
        stds: standard deviations of the prior.
        theta: the fitted parameters.
        residuals: errors of the physical model, by field of ``Estimate``.
        held_out: errors on windows that were left out.
    """

    models: tuple[str, ...]
    identity: Mapping[str, Any]
    source: Source
    reference_mhz: float | None
    scales: Scales
    means: Array
    stds: Array
    theta: Array
    residuals: Mapping[str, Residual]
    held_out: tuple[HeldOut, ...] = ()

    @classmethod
    def fit(
        cls, windows: Sequence[MeasuredWindow], *, prior: "Predictor | None" = None
    ) -> "Predictor":
        """Fit windows, and measure the errors on windows that are left out.

        Failed windows are not used. Nor is the power of a GPU without processes, because it is
        lower than that of processes that wait. Of windows with different tenants that lack the
        throughput of each tenant, only power and utilisations are used.

        Args:
            windows: measurements of one GPU, dataset, mode and memory clock.
            prior: a predictor of another card, from whose parameters the fit starts.

        Raises:
            ValueError: if there are fewer than three windows, or if they do not belong together.
        """
        used = _usable(windows)
        errors = held_out(used, lambda part: cls.fit_only(part, prior=prior))
        return replace(cls.fit_only(used, prior=prior), held_out=errors)

    @classmethod
    def fit_only(
        cls, windows: Sequence[MeasuredWindow], *, prior: "Predictor | None" = None
    ) -> "Predictor":
        """Fit without measuring errors; arguments and exceptions are those of ``fit``."""
        used = _usable(windows)
        identity = _identity(used)
        models = tuple(sorted({one.model for each in used for one in each.configuration.tenants}))
        clocks = [x for one in used for x in (one.configuration.sm_mhz, one.sm_mhz_measured) if x]
        reference_mhz = max(clocks, default=None)
        made = rows.of([one.configuration for one in used], models, reference_mhz)
        measured = outputs.measured(used)
        for at, model in enumerate(models):
            if np.isnan(measured.rate[made.model == at]).all():
                raise ValueError(f"no window has the throughput of {model}; measure it alone")
        scales = _typical(measured, made, len(models))
        means, stds = physics.prior(len(models))
        if prior is not None:
            scales, means, stds = _transferred(prior, models, used, scales)
        theta = physics.fit(measured, made, scales, means, stds)
        residuals: dict[str, Residual] = {}
        for one in outputs.of(theta, scales, made, len(models)):
            errors = getattr(measured, one.kind) - one.values
            known = ~np.isnan(errors)
            if known.any():
                slopes = one.slopes[known]
                targets = errors[known] + slopes @ (theta - means)
                residuals[one.kind] = fitted(one.features[known], slopes, stds**2, targets)
        return cls(
            models=models,
            identity=identity,
            source=_source(used),
            reference_mhz=reference_mhz,
            scales=scales,
            means=means,
            stds=stds,
            theta=theta,
            residuals=residuals,
        )

    def predict(self, configuration: Configuration) -> Prediction:
        """Return the prediction for one configuration.

        Without tenants, it is the power of processes that wait.

        Raises:
            ValueError: if a model, a clock or the memory clock of it was not measured.
        """
        return self.predict_many([configuration])[0]

    def predict_many(self, configurations: Sequence[Configuration]) -> list[Prediction]:
        """Return the predictions for several configurations, which is faster than one by one."""
        made = self._rows(configurations)
        found = {}
        for one in outputs.of(self.theta, self.scales, made, len(self.models)):
            if (left := self.residuals.get(one.kind)) is not None:
                more, half = left.predict(one.features, one.slopes)
                center = one.values - one.slopes @ (self.theta - self.means) + more
                found[one.kind] = np.column_stack([center, half])
        return predictions.of(configurations, found, self.source, self.identity)

    def gains(self, configurations: Sequence[Configuration]) -> Array:
        """Return by how much measuring each configuration reduces the variances of all of them.

        The variances are those of the logarithms of power and of the rates of all models.
        """
        made = self._rows(configurations)
        rate, power, *_ = outputs.of(self.theta, self.scales, made, len(self.models))
        gains = self.residuals["power"].gain(power.features, power.slopes)
        np.add.at(gains, made.row, self.residuals["rate"].gain(rate.features, rate.slopes))
        return gains

    def next_configuration(self, candidates: Sequence[Configuration]) -> Configuration:
        """Return the candidate to measure next: the one with the largest of ``gains``."""
        return candidates[int(np.argmax(self.gains(candidates)))]

    def require(self, **identity: Any) -> None:
        """Raise an error unless the windows had these values, such as ``dataset="imagenet"``.

        Raises:
            ValueError: if they had another value; ``None`` is not compared.
        """
        for name, value in identity.items():
            if value is not None and value != self.identity[name]:
                raise ValueError(
                    f"the predictor was fitted to windows with {name} {self.identity[name]!r}, "
                    f"not {value!r}; fit another predictor to windows with {name} {value!r}"
                )

    def save(self, path: Path) -> None:
        """Write a JSON file, which ``load`` reads."""
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        atomic_files.write(path, json_file.text(fields))

    @classmethod
    def load(cls, path: Path) -> "Predictor":
        """Read a file that ``save`` has written.

        Raises:
            ValueError: if the file is not one.
        """
        return cls(**json_file.read(path))

    def _rows(self, configurations: Sequence[Configuration]) -> Rows:
        for one in configurations:
            self.require(mem_mhz=one.mem_mhz)
        return rows.of(configurations, self.models, self.reference_mhz)


def _usable(windows: Sequence[MeasuredWindow]) -> list[MeasuredWindow]:
    """Return the windows that can be fitted; processes that wait count as no tenants."""
    used = []
    for one in windows:
        if one.status != "ok" or one.phase == "idle":
            continue
        _check(one)
        if one.phase == "static":
            waiting = replace(one.configuration, tenants=())
            used.append(replace(one, configuration=waiting, throughput_per_s=None))
        elif one.configuration.tenants:
            used.append(one)
    known = [one for one in used if one.configuration.tenants and one.power_mean_w]
    if len(known) < _LEAST:
        raise ValueError(
            f"a fit needs at least {_LEAST} windows that ended well and have a power, got "
            f"{len(known)}"
        )
    return used


def _check(window: MeasuredWindow) -> None:
    for name in ("throughput_per_s", "power_mean_w"):
        value = getattr(window, name)
        if value is not None and not 0.0 <= value < np.inf:
            raise ValueError(
                f"{name} must be finite and not negative, got {value:g} in a window of "
                f"{[*window.configuration.tenants[:1]]}; correct it, or leave it empty"
            )


def _identity(windows: Sequence[MeasuredWindow]) -> dict[str, Any]:
    """Return what all windows have in common.

    Raises:
        ValueError: if they differ.
    """
    values: dict[str, set[Any]] = {
        "gpu_name": {one.gpu_name for one in windows},
        "dataset": {one.dataset for one in windows},
        "mode": {one.mode for one in windows},
        "mem_mhz": {one.configuration.mem_mhz for one in windows},
    }
    for name, found in values.items():
        if len(found) > 1:
            listed = ", ".join(sorted(map(repr, found)))
            raise ValueError(
                f"the windows have several values of {name}: {listed}; fit one predictor to each"
            )
    return {name: found.pop() for name, found in values.items()}


def _source(windows: Sequence[MeasuredWindow]) -> Source:
    """Return the source that says most against trusting the figures."""
    found = {one.source for one in windows}
    order: tuple[Source, ...] = ("simulated", "imported", "measured")
    return next(one for one in order if one in found)


def _typical(measured: physics.Estimate, made: Rows, models: int) -> Scales:
    power_w = np.exp(measured.power)
    rates = np.exp(measured.rate)
    total = made.sums(np.nan_to_num(rates))[made.row]
    sample_j = np.divide(power_w[made.row], total, out=np.full_like(rates, np.nan), where=total > 0)
    highest_w = float(np.nanmax(power_w, initial=1.0))
    masks = [made.model == at for at in range(models)]
    return Scales(
        np.array([_median(1 / rates[mask]) for mask in masks]),
        np.array([_median(made.batch[mask]) for mask in masks]),
        np.array([_median(sample_j[mask]) for mask in masks]),
        highest_w,
    )


def _median(values: Array) -> float:
    """Return the geometric median of the known values; 1 if there is none."""
    known = values[~np.isnan(values)]
    return float(np.exp(np.median(np.log(known)))) if len(known) else 1.0


def _transferred(
    prior: Predictor, models: Sequence[str], windows: Sequence[MeasuredWindow], scales: Scales
) -> tuple[Scales, Array, Array]:
    """Return scales and the prior of parameters from a predictor of another card.

    The other predictor is evaluated at the new windows: the medians of the ratios of times and
    powers are the scales of the new card.
    """
    means, stds = physics.prior(len(models))
    size = len(physics.OF_MODEL)
    means[-len(physics.OF_DEVICE) :] = prior.theta[-len(physics.OF_DEVICE) :]
    stds[-len(physics.OF_DEVICE) :] *= _TRANSFER
    sample_s, batch, sample_j = (one.copy() for one in scales[:3])
    highest_w = scales.power_w
    for at, model in enumerate(models):
        if model not in prior.models:
            continue
        old = prior.models.index(model)
        own = [one for one in windows if {t.model for t in one.configuration.tenants} == {model}]
        made = rows.of([replace(one.configuration, sm_mhz=None) for one in own], prior.models, None)
        known, form = outputs.measured(own), physics.estimate(prior.theta, prior.scales, made)
        slower = 1 / _median(np.exp(known.rate - form.rate))
        stronger = _median(np.exp(known.power - form.power))
        sample_s[at], batch[at] = prior.scales.sample_s[old] * slower, prior.scales.batch[old]
        sample_j[at] = prior.scales.sample_j[old] * slower * stronger
        highest_w = prior.scales.power_w * stronger
        means[at * size : (at + 1) * size] = prior.theta[old * size : (old + 1) * size]
        stds[at * size : (at + 1) * size] *= _TRANSFER
    return Scales(sample_s, batch, sample_j, highest_w), means, stds
