"""Creates TensorBoard summaries of numbers, text and images, without a framework."""

import struct
from collections.abc import Mapping
from functools import partial
from typing import Any


def scalars(values: Mapping[str, float]) -> Any:
    """Return a summary with numbers by tag, stored as ``simple_value`` and sorted by tag."""
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    return Summary(
        value=[Summary.Value(tag=tag, simple_value=value) for tag, value in sorted(values.items())]
    )


def tensors(values: Mapping[str, float]) -> Any:
    """Return a summary with numbers by tag, stored as ``tf.summary.scalar`` does, sorted by tag."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.tensor_pb2 import TensorProto  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.types_pb2 import DT_FLOAT  # pyright: ignore[reportAttributeAccessIssue]

    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="scalars"))
    number = partial(TensorProto, dtype=DT_FLOAT, tensor_shape=TensorShapeProto())
    return Summary(
        value=[
            Summary.Value(tag=tag, metadata=about, tensor=number(float_val=[value]))
            for tag, value in sorted(values.items())
        ]
    )


def data(tag: str, plugin: str, content: bytes) -> Any:
    """Return a summary with data for a TensorBoard plugin, in the plugin's format."""
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.tensor_pb2 import TensorProto  # pyright: ignore[reportAttributeAccessIssue]
    from tensorboard.compat.proto.types_pb2 import DT_STRING  # pyright: ignore[reportAttributeAccessIssue]

    about = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name=plugin))
    tensor = TensorProto(dtype=DT_STRING, string_val=[content])
    return Summary(value=[Summary.Value(tag=tag, metadata=about, tensor=tensor)])


def verbatim(tag: str, text: str) -> Any:
    """Return a summary with text that TensorBoard shows unchanged.

    The text becomes an indented code block of Markdown, because a line of the text could end a
    fenced code block.
    """
    from tensorboard.plugins.text.metadata import PLUGIN_NAME

    block = "\n".join(f"    {line}" for line in text.splitlines())
    return data(tag, PLUGIN_NAME, block.encode())


def image(tag: str, png: bytes) -> Any:
    """Return a summary with a PNG image.

    Width and height are read from the first chunk of the image (PNG specification, 11.2.1).
    """
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportAttributeAccessIssue]

    width, height = struct.unpack(">II", png[16:24])
    picture = Summary.Image(height=height, width=width, colorspace=4, encoded_image_string=png)
    return Summary(value=[Summary.Value(tag=tag, image=picture)])
