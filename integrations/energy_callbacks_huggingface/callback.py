"""Defines ``GpuEnergyCallback`` for the Trainer: its settings, and emissions for a model card."""

from collections.abc import Callable
from typing import Any, Unpack

from energy_callbacks.callback import CallbackSettings, EnergyCallback, meter_from
from energy_callbacks.core.settings.checks import check_function, check_log_every_n_steps
from energy_callbacks_huggingface.hooks import EnergyHooks


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Logs energy together with the loss of the training, and writes a report at the end.

    >>> trainer = Trainer(..., callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    Figures are added to the logs that contain the loss. The names of the figures are described in
    ``docs/reference/metrics.md``.

    Args:
        log_every_n_steps: figures are added to the logs of steps that are divisible by this number;
            1 adds figures to all logs with the loss. ``None`` adds figures at most once per second,
            or to all logs with ``logging_strategy="epoch"``. The Trainer's ``logging_steps``
            decides which steps are logged.
        batch_size_fn: returns the number of samples in the inputs of a forward pass; ``None`` uses
            the batch size of the loader.
        tokens_fn: returns the number of tokens in the inputs of a forward pass. ``None`` uses the
            Trainer's own count, which exists only if ``args.include_num_input_tokens_seen`` is on.
        **settings: see ``CallbackSettings``; the default of ``report_dir`` is
            ``<args.output_dir>/energy``.

    Raises:
        ValueError: for an invalid setting, such as an unknown country.
        TypeError: for a setting of the wrong type.
    """

    __module__ = "energy_callbacks.huggingface"
    framework_name = "Hugging Face"

    def __init__(
        self,
        *,
        log_every_n_steps: int | None = None,
        batch_size_fn: Callable[[Any], int] | None = None,
        tokens_fn: Callable[[Any], int] | None = None,
        **settings: Unpack[CallbackSettings],
    ) -> None:
        super().__init__(
            meter_from(settings, own=("log_every_n_steps", "batch_size_fn", "tokens_fn")),
            check_function("batch_size_fn", batch_size_fn),
            check_function("tokens_fn", tokens_fn),
            check_log_every_n_steps(log_every_n_steps),
        )

    def co2_eq_emissions(self, *, training_type: str | None = None) -> dict[str, str | float]:
        """Return the field ``co2_eq_emissions`` of a model card.

        Args:
            training_type: kind of training, such as ``"pre-training"`` or ``"fine-tuning"``;
                ``None`` leaves it out of the result.

        Raises:
            ValueError: if the energy of the run or the location of the machine is unknown.
        """
        from energy_callbacks.report.render.model_card import co2_eq_emissions

        return co2_eq_emissions(self.report(), training_type=training_type)


class ReportedEnergyCallback(GpuEnergyCallback):
    """The callback that ``report_to=["energy"]`` adds.

    It measures nothing if the user has also added a ``GpuEnergyCallback``.
    """

    is_from_report_to = True
