"""Builds what runs batches of a model, in the process of a tenant.

A model is named as one of ``TORCHVISION``, as ``zoo:NAME`` of the package's small networks, or as
``module:function``; ``eager:`` before a name is for inference without CUDA graphs. Weights are
random, with a fixed seed: the power at the same throughput depends on the values of weights and
data.
"""

import gc
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import torch

TORCHVISION: Final = (
    "mnasnet",
    "densenet201",
    "efficientnet_v2_m",
    "maxvit_t",
    "mobilenet_v2",
    "resnet50",
    "vgg19",
)
"""Names of models of torchvision."""
# Names in torchvision that differ.
_BUILDERS: Final = {"mnasnet": "mnasnet1_0"}
# Width and height of images, in pixels. ImageNet's size is that of all models of torchvision here.
_IMAGENET: Final = 224
_ZOO_SIZE: Final = 32
_ZOO: Final = "zoo:"
_EAGER: Final = "eager:"


def check_name(model: str) -> None:
    """Raise ``ValueError`` if there cannot be a model of this name."""
    from energy_callbacks.profiling.zoo.quick import MODELS

    zoo = [f"{_ZOO}{name}" for name in MODELS]
    name = model.removeprefix(_EAGER)
    module, _, function = name.partition(":")
    is_known = name in zoo if module == "zoo" else name in TORCHVISION or bool(module and function)
    if not is_known:
        known = ", ".join((*TORCHVISION, *zoo))
        raise ValueError(f"there is no model {model!r}; use one of {known}, or module:function")


class Loader:
    """Builds models; a model is built again only if its name or the mode changes."""

    def __init__(self) -> None:
        self._key: tuple[str, str] | None = None
        self._built: tuple[Any, int] = (None, 0)

    def load(self, command: dict[str, Any]) -> Callable[[int], None]:
        """Return a function that runs a batch of a number of samples and waits for its end.

        Args:
            command: ``model``; ``batch``, the largest number of samples; ``mode``; ``device`` of
                PyTorch; ``share_pct``; ``data``, a folder of images, or ``None`` for synthetic
                images.
        """
        key = (command["model"], command["mode"])
        if key != self._key:
            self._built = (None, 0)  # frees the memory of the model before
            gc.collect()
            self._built, self._key = _built(command["model"]), key
        model, size = self._built
        if not _is_module(model):
            step: Callable[[int], None] = model
            return step
        import torch

        from energy_callbacks.inference.profile import images

        device = torch.device(command["device"])
        if device.type == "cuda":
            torch.cuda.empty_cache()
        else:
            # Tenants run on Linux only, see ``RunFolder``.
            cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
            torch.set_num_threads(max(round(cores * command["share_pct"] / 100.0), 1))
        folder = None if command["data"] is None else Path(command["data"])
        inputs = torch.from_numpy(images.batch(folder, command["batch"], size)).to(device)
        network = model.to(device)
        if command["mode"] == "train":
            return _training(network, inputs)
        return _inference(command["model"], network, inputs)


def _built(name: str) -> tuple[Any, int]:
    """Return a model, and width and height of its images in pixels."""
    name = name.removeprefix(_EAGER)
    module, _, function = name.partition(":")
    if module != "zoo" and function:
        made = importlib.import_module(module)
        for part in function.split("."):
            made = getattr(made, part)
        return made(), _IMAGENET  # type: ignore[operator]
    import torch

    torch.manual_seed(0)
    if module == "zoo":
        from energy_callbacks.profiling.zoo import torch_models

        return torch_models.MODELS[function](10), _ZOO_SIZE
    models = importlib.import_module("torchvision.models")
    return models.get_model(_BUILDERS.get(name, name), weights=None), _IMAGENET


def _is_module(model: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _inference(
    name: str, network: "torch.nn.Module", inputs: "torch.Tensor"
) -> Callable[[int], None]:
    import torch

    network.eval()
    if inputs.device.type == "cuda":
        from energy_callbacks.inference.profile.graphs import GraphedStep

        cause = f"the model's name begins with {_EAGER}" if name.startswith(_EAGER) else ""
        return GraphedStep(network.half(), inputs.half(), cause)

    def step(samples: int) -> None:
        with torch.inference_mode():
            network(inputs[:samples])

    return step


def _training(network: "torch.nn.Module", inputs: "torch.Tensor") -> Callable[[int], None]:
    import torch

    network.train()
    device = inputs.device.type
    optimizer = torch.optim.SGD(network.parameters(), lr=0.001, momentum=0.9)
    labels = torch.zeros(len(inputs), dtype=torch.int64, device=inputs.device)

    def step(samples: int) -> None:
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss: Any = torch.nn.functional.cross_entropy(
                network(inputs[:samples]), labels[:samples]
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    return step
