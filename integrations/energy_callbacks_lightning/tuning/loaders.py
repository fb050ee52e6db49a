"""Changes the batch size of the training loaders of ``fit``.

If a module or datamodule creates the loaders, its attribute with the batch size is set and the
loaders are created again, as Lightning's ``BatchSizeFinder`` does. Loaders that were passed
to ``fit`` are copied with another batch size. Every loader must be a PyTorch ``DataLoader`` that
was created with ``batch_size=``.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from energy_callbacks.tuning import longest, torch_loaders
from energy_callbacks_lightning.bases import packages

Loaders = TypeVar("Loaders")

_Combined = packages[0].utilities.CombinedLoader
_COMBINED = tuple(package.utilities.CombinedLoader for package in packages)
_parsing = packages[0].utilities.parsing
_request = packages[0].trainer.connectors.data_connector._request_dataloader  # noqa: SLF001


def with_batch_size(loaders: Loaders, batch_size: int) -> Loaders:
    """Return copies of loaders with another batch size; everything else is the same.

    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(range(100), batch_size=8, drop_last=True)
    >>> larger = with_batch_size(loader, 32)
    >>> larger.batch_size, len(larger), loader.batch_size
    (32, 3, 8)

    Args:
        loaders: a ``DataLoader``, or lists, dictionaries or a ``CombinedLoader`` of these.
        batch_size: batch size of the copies.

    Raises:
        ValueError: if a loader was not created with ``batch_size=``.
    """
    copied = _mapped(loaders, lambda one: _resized(one, batch_size))
    found: Loaders = copied if isinstance(loaders, _COMBINED) else copied.iterables
    return found


class TrainLoaders:
    """Creates the training loaders of ``fit`` with other batch sizes.

    Args:
        trainer: a trainer that is running ``fit``.
        batch_arg_name: name of the attribute with the batch size, in the module, the datamodule or
            their ``hparams``.

    Attributes:
        batch_size: batch size that the loaders had when this object was created.
        is_passed: whether loaders were passed to ``fit``.

    Raises:
        ValueError: if the batch size cannot be changed.
    """

    def __init__(self, trainer: Any, batch_arg_name: str) -> None:
        self._trainer = trainer
        self._name = batch_arg_name
        self._source = trainer.fit_loop._data_source  # noqa: SLF001 - like BatchSizeFinder
        self._holders = _holders(trainer.lightning_module, batch_arg_name)
        self.is_passed = not self._source.is_module()
        if not (self.is_passed or self._holders):
            raise ValueError(
                f"the loaders come from {type(self._source.instance).__name__}, but neither it "
                f"nor its hparams have {batch_arg_name!r}; add it and use it in "
                "train_dataloader(), or pass the loaders to fit"
            )
        sizes = {one.batch_size for one in _mapped(_request(self._source), _checked).flattened}
        self.batch_size = sizes.pop()
        if sizes:
            raise ValueError(
                "all loaders must have one batch size, got "
                f"{sorted({self.batch_size, *sizes})}; use the same for all, or tune with one "
                "of them"
            )

    def at(self, size: int) -> Any:
        """Return a ``CombinedLoader`` that yields full batches of ``size`` samples.

        Attributes with the batch size are set to ``size``. Samples are distributed over the ranks
        as in the training.

        Raises:
            ValueError: if a loader was not created with ``batch_size=``, or if the module or
                datamodule created a loader with a batch size other than ``size``.
        """
        self._set(size)
        strategy, trainer = self._trainer.strategy, self._trainer

        def made(loader: Any) -> Any:
            _checked(loader)
            if not self.is_passed and loader.batch_size != size:
                raise ValueError(
                    f"train_dataloader() of {type(self._source.instance).__name__} gave batches "
                    f"of {loader.batch_size} when {self._name} was {size}; use this value in it"
                )
            connector = trainer._data_connector  # noqa: SLF001 - distributes samples over ranks
            loader = connector._prepare_dataloader(loader, shuffle=True, mode=trainer.state.stage)  # noqa: SLF001
            return strategy.process_dataloader(_resized(loader, size, drop_last=True))

        return _mapped(_request(self._source), made)

    def samples(self) -> int | None:
        """Return the number of samples that each rank reads from the smallest loader.

        Loaders whose number of samples is not known are ignored. ``None`` if no number is known.
        """
        known = [_samples(one) for one in self.at(self.batch_size).flattened]
        return min((one for one in known if one is not None), default=None)

    def worst(self, combined: Any, length_fn: Callable[[Any], int]) -> Callable[[int], Any]:
        """Return a function of the batch size that returns a batch of the longest samples.

        Args:
            combined: loaders, as returned by ``at``; their ``collate_fn`` creates the batch.
            length_fn: returns the length of a sample.
        """
        orders = [longest(one.dataset, length_fn) for one in combined.flattened]

        def batch(size: int) -> Any:
            made = copy.copy(combined)
            made.flattened = [
                one.collate_fn([one.dataset[index] for index in order[:size]])
                for one, order in zip(combined.flattened, orders, strict=True)
            ]
            return made.iterables

        return batch

    def keep(self, size: int) -> None:
        """Set the batch size of the training: in attributes, and in copies of passed loaders."""
        self._set(size)
        if self.is_passed:
            self._source.instance = with_batch_size(self._source.instance, size)

    def restore(self) -> None:
        """Restore the attributes with the batch size to their values before the search."""
        for holder, value in self._holders:
            _assign(holder, self._name, value)

    def _set(self, size: int) -> None:
        for holder, _ in self._holders:
            _assign(holder, self._name, size)


def _mapped(loaders: Any, change: Callable[[Any], Any]) -> Any:
    """Return a ``CombinedLoader`` with ``change(loader)`` for each loader."""
    is_one = isinstance(loaders, _COMBINED)
    combined = copy.copy(loaders) if is_one else _Combined(loaders, "max_size_cycle")
    combined.flattened = [change(one) for one in combined.flattened]
    return combined


def _resized(loader: Any, size: int, *, drop_last: bool | None = None) -> Any:
    _checked(loader)
    drops = loader.drop_last if drop_last is None else drop_last
    return torch_loaders.resized(loader, size, drop_last=drops)


def _checked(loader: Any) -> Any:
    is_plain = isinstance(loader, DataLoader) and type(loader.batch_sampler) is BatchSampler
    if not is_plain or loader.batch_size is None:
        own = ""
        if isinstance(loader, DataLoader):
            own = f" with batch_size={loader.batch_size}, batch_sampler={loader.batch_sampler}"
        raise ValueError(
            "other batch sizes can be tried only with a torch.utils.data.DataLoader that was "
            f"created with batch_size=, got {type(loader).__name__}{own}; tune with such a "
            "loader of the same samples"
        )
    return loader


def _samples(loader: Any) -> int | None:
    held: Any = loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.sampler
    return len(held) if hasattr(held, "__len__") else None


def _holders(module: Any, name: str) -> list[tuple[Any, Any]]:
    """Return the objects in which Lightning finds an attribute, each with the current value."""
    found = _parsing._lightning_get_all_attr_holders(module, name)  # noqa: SLF001
    return [(one, one[name] if isinstance(one, dict) else getattr(one, name)) for one in found]


def _assign(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)
