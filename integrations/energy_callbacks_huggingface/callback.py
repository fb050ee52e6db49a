"""GpuEnergyCallback: its settings, its report, and the lines it gives to a model card."""

from collections.abc import Callable
from typing import Any, Unpack

from energy_callbacks.callback import CallbackSettings, EnergyCallback, meter_from
from energy_callbacks.core.config import check_function
from energy_callbacks_huggingface.hooks import EnergyHooks


class GpuEnergyCallback(EnergyCallback, EnergyHooks):
    """Energy beside the loss in the user's own run, and a report at the end.

    >>> trainer = Trainer(..., callbacks=[GpuEnergyCallback()])  # doctest: +SKIP

    Figures come with the rows of the loss, each ``args.logging_steps`` steps. The tags are
    described in ``docs/reference/metrics.md``.

    Args:
        batch_size_fn: samples in the inputs of a forward pass; ``None`` takes them from the
            loader.
        length_fn: tokens in them; ``None`` takes them from ``include_num_input_tokens_seen``,
            else figures per token are left out.
        **settings: see ``CallbackSettings``; the run folder is by default
            ``<args.output_dir>/energy``.

    Raises:
        ValueError: for a setting that is wrong in itself, such as an unknown country.
        TypeError: for one of the wrong type.
    """

    __module__ = "energy_callbacks.huggingface"
    framework_name = "Hugging Face"

    def __init__(
        self,
        *,
        batch_size_fn: Callable[[Any], int] | None = None,
        length_fn: Callable[[Any], int] | None = None,
        **settings: Unpack[CallbackSettings],
    ) -> None:
        super().__init__(
            meter_from(settings, own=("batch_size_fn", "length_fn")),
            check_function("batch_size_fn", batch_size_fn),
            check_function("length_fn", length_fn),
        )

    def co2_eq_emissions(self, *, training_type: str | None = None) -> dict[str, str | float]:
        """The field ``co2_eq_emissions`` of a model card; see ``report/model_card.py``.

        Args:
            training_type: such as ``"pre-training"`` or ``"fine-tuning"``.

        Raises:
            ValueError: if the place is not known.
        """
        from energy_callbacks.report.render.model_card import co2_eq_emissions

        return co2_eq_emissions(self.report, training_type=training_type)


class ReportedEnergyCallback(GpuEnergyCallback):
    """The one that ``report_to=["energy"]`` makes; it stands back for one that the user made."""

    __module__ = "energy_callbacks_huggingface.callback"
    is_from_report_to = True
