"""The loaders of a training, at any batch size.

Those of a module or a datamodule are asked for again, after its attribute ``batch_size`` was set,
as Lightning's ``BatchSizeFinder`` does. Those that were passed to ``fit`` are copied with another
size. Either way they must be of PyTorch's ``DataLoader``, with a batch size of their own.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from energy_callbacks.tuning import longest
from energy_callbacks_lightning.bases import packages

Loaders = TypeVar("Loaders")

_Combined = packages[0].utilities.CombinedLoader
_COMBINED = tuple(package.utilities.CombinedLoader for package in packages)
_parsing = packages[0].utilities.parsing
_request = packages[0].trainer.connectors.data_connector._request_dataloader  # noqa: SLF001


def with_batch_size(loaders: Loaders, batch_size: int) -> Loaders:
    """Copies of loaders with another batch size and all else the same.

    >>> from torch.utils.data import DataLoader
    >>> loader = DataLoader(range(100), batch_size=8, drop_last=True)
    >>> larger = with_batch_size(loader, 32)
    >>> larger.batch_size, len(larger), loader.batch_size
    (32, 3, 8)

    Args:
        loaders: a ``DataLoader``, or lists, dictionaries or a ``CombinedLoader`` of such.
        batch_size: of the copies.

    Raises:
        ValueError: if a loader has no batch size of its own.
    """
    copied = _mapped(loaders, lambda one: _resized(one, batch_size))
    found: Loaders = copied if isinstance(loaders, _COMBINED) else copied.iterables
    return found


class TrainLoaders:
    """The training data of ``fit``.

    Args:
        trainer: in ``fit``.
        batch_arg_name: the attribute of module or datamodule, or of their ``hparams``.

    Attributes:
        batch_size: in use so far.
        is_passed: whether loaders were passed to ``fit``.

    Raises:
        ValueError: if no other batch size can be tried.
    """

    def __init__(self, trainer: Any, batch_arg_name: str) -> None:
        self._trainer = trainer
        self._name = batch_arg_name
        self._source = trainer.fit_loop._data_source  # noqa: SLF001 - as BatchSizeFinder
        self._holders = _holders(trainer.lightning_module, batch_arg_name)
        self.is_passed = not self._source.is_module()
        if not (self.is_passed or self._holders):
            raise ValueError(
                f"the loaders come from {type(self._source.instance).__name__}, which has no "
                f"{batch_arg_name!r}, nor have its hparams; give it one that its "
                "train_dataloader() uses, or pass the loaders to fit"
            )
        sizes = {_checked(one).batch_size for one in _flat(self._asked())}
        self.batch_size = sizes.pop()
        if sizes:
            raise ValueError(
                f"all loaders must have one batch size, got {sorted({self.batch_size, *sizes})}; "
                "give them the same, or tune with one of them"
            )

    def at(self, size: int) -> Any:
        """A ``CombinedLoader`` of full batches of one size, with the samplers of training."""
        self._set(size)
        strategy, trainer = self._trainer.strategy, self._trainer

        def made(loader: Any) -> Any:
            _checked(loader)
            if not self.is_passed and loader.batch_size != size:
                raise ValueError(
                    f"train_dataloader() of {type(self._source.instance).__name__} gave batches "
                    f"of {loader.batch_size} where {self._name} was {size}; let it use that"
                )
            connector = trainer._data_connector  # noqa: SLF001 - gives ranks their samples
            loader = connector._prepare_dataloader(loader, shuffle=True, mode=trainer.state.stage)  # noqa: SLF001
            return strategy.process_dataloader(_resized(loader, size, drop_last=True))

        return _mapped(self._asked(), made)

    def samples(self) -> int | None:
        """How many the smallest loader has for each rank; ``None`` for streams."""
        known = [_samples(one) for one in self.at(self.batch_size).flattened]
        return min((one for one in known if one is not None), default=None)

    def worst(self, combined: Any, length_fn: Callable[[Any], int]) -> Callable[[int], Any]:
        """Makes the batch of the longest samples, collated as the loaders do."""
        places = [longest(one.dataset, length_fn) for one in combined.flattened]

        def batch(size: int) -> Any:
            made = copy.copy(combined)
            made.flattened = [
                one.collate_fn([one.dataset[place] for place in its_places[:size]])
                for one, its_places in zip(combined.flattened, places, strict=True)
            ]
            return made.iterables

        return batch

    def keep(self, size: int) -> None:
        """From now on the training has this size."""
        self._set(size)
        if self.is_passed:
            self._source.instance = with_batch_size(self._source.instance, size)

    def restore(self) -> None:
        """The attributes as they were."""
        for holder, value in self._holders:
            _assign(holder, self._name, value)

    def _asked(self) -> Any:
        return _request(self._source)

    def _set(self, size: int) -> None:
        for holder, _ in self._holders:
            _assign(holder, self._name, size)


def generators(combined: Any) -> Iterator[torch.Generator]:
    """The random generators that loaders and their samplers hold."""
    for loader in combined.flattened:
        for held in (*vars(loader).values(), *vars(loader.sampler).values()):
            if isinstance(held, torch.Generator):
                yield held


def _mapped(loaders: Any, change: Callable[[Any], Any]) -> Any:
    """A ``CombinedLoader`` of what becomes of each."""
    is_one = isinstance(loaders, _COMBINED)
    combined = copy.copy(loaders) if is_one else _Combined(loaders, "max_size_cycle")
    combined.flattened = [change(one) for one in combined.flattened]
    return combined


def _flat(loaders: Any) -> list[Any]:
    return list(_mapped(loaders, lambda one: one).flattened)


def _resized(loader: Any, size: int, *, drop_last: bool | None = None) -> Any:
    _checked(loader)
    drops = loader.drop_last if drop_last is None else drop_last
    resized = copy.copy(loader)
    sampler = BatchSampler(loader.sampler, size, drops)
    # DataLoader lets none of these be set after it was made, and not all subclasses can be made
    # anew from what they hold.
    vars(resized).update(batch_size=size, drop_last=drops, batch_sampler=sampler, _iterator=None)
    return resized


def _checked(loader: Any) -> Any:
    is_plain = isinstance(loader, DataLoader) and type(loader.batch_sampler) is BatchSampler
    if not is_plain or loader.batch_size is None:
        own = ""
        if isinstance(loader, DataLoader):
            own = f" with batch_size={loader.batch_size}, batch_sampler={loader.batch_sampler}"
        raise ValueError(
            "other batch sizes can be tried with a torch.utils.data.DataLoader that was made with "
            f"batch_size=, got {type(loader).__name__}{own}; tune with such a loader of the same "
            "samples"
        )
    return loader


def _samples(loader: Any) -> int | None:
    held: Any = loader.dataset if isinstance(loader.dataset, IterableDataset) else loader.sampler
    return len(held) if hasattr(held, "__len__") else None


def _holders(module: Any, name: str) -> list[tuple[Any, Any]]:
    """The owner of the attribute, by Lightning's own rules, and its value there."""
    found = _parsing._lightning_get_all_attr_holders(module, name)  # noqa: SLF001
    return [(one, one[name] if isinstance(one, dict) else getattr(one, name)) for one in found]


def _assign(holder: Any, name: str, value: Any) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    else:
        setattr(holder, name, value)
