"""Numbers, text and pictures as the summaries that TensorBoard reads; no framework is needed."""

import struct
from collections.abc import Mapping
from typing import Any


def data(plugin: str, content: bytes = b"") -> Any:
    """Metadata of a value that belongs to one of TensorBoard's plugins."""
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata  # pyright: ignore[reportAttributeAccessIssue]

    return SummaryMetadata(
        plugin_data=SummaryMetadata.PluginData(plugin_name=plugin, content=content)
    )


def scalars(values: Mapping[str, float]) -> Any:
    """Classic scalars, in the order of their tags."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    return Summary(
        value=[Summary.Value(tag=tag, simple_value=value) for tag, value in sorted(values.items())]
    )


def verbatim(tag: str, words: str) -> Any:
    """Text that TensorBoard shows as it is: in Markdown a block of code, by its indent.

    A fence could be ended by a line of the text; an indent cannot.
    """
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.tensor_pb2 import TensorProto  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.types_pb2 import DT_STRING  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.plugins.text.metadata import PLUGIN_NAME

    block = "\n".join(f"    {line}" for line in words.splitlines())
    tensor = TensorProto(dtype=DT_STRING, string_val=[block.encode()])
    return Summary(value=[Summary.Value(tag=tag, metadata=data(PLUGIN_NAME), tensor=tensor)])


def image(tag: str, png: bytes) -> Any:
    """A picture; its size stands in the first chunk of a PNG (PNG specification, 11.2.1)."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    width, height = struct.unpack(">II", png[16:24])
    picture = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
    return Summary(value=[Summary.Value(tag=tag, image=picture)])
