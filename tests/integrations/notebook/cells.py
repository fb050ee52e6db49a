"""Runs the cells of a notebook in a real kernel, which is a fork of a warm process."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from nbformat.v4 import output_from_msg

from tests.integrations.processes import Forking, Script, wait

# Kinds of messages that are outputs of a cell.
_OUTPUTS = ("stream", "display_data", "execute_result", "error")


def run_cells(forking: Forking, folder: Path, sources: Iterable[str]) -> list[list[Any]]:
    """The outputs of each cell; one that fails does not keep the next from being run."""
    connection, _ = write_connection_file(str(folder / "kernel.json"))
    script = Script(module="ipykernel_launcher", folder=folder, arguments=("-f", connection))
    running = forking.start(script)
    client = BlockingKernelClient(connection_file=connection)
    client.load_connection_file()
    client.hb_channel.time_to_dead = 60.0  # s; on a busy machine, a kernel that lives may be slow
    client.start_channels()
    try:
        client.wait_for_ready(timeout=600.0)
        found = [_outputs(client, source) for source in sources]
        client.shutdown()
        assert (rc := wait(running)) == 0, (rc, script.output)
    finally:
        client.stop_channels()
    return found


def _outputs(client: BlockingKernelClient, source: str) -> list[Any]:
    """Of one cell, as a notebook would keep them."""
    found = []

    def keep(message: dict[str, Any]) -> None:
        if message["header"]["msg_type"] in _OUTPUTS:
            found.append(output_from_msg(message))

    client.execute_interactive(source, timeout=600.0, output_hook=keep, allow_stdin=False)
    return found
