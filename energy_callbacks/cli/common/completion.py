"""``--print-completion SHELL``: prints a script that completes commands and options in a shell."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from energy_callbacks.core.errors import MissingExtraError
from energy_callbacks.core.extras import requires


class PrintCompletion(argparse.Action):
    """Prints the completion script of a shell and ends the program."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002 - of the interface of argparse
        values: Any,
        option_string: str | None = None,  # noqa: ARG002
    ) -> None:
        """Print the script for the shell ``values``."""
        try:
            with requires("shtab", extra="completion"):
                import shtab
        except MissingExtraError as error:
            parser.exit(1, f"{error}\n")
        if values not in shtab.SUPPORTED_SHELLS:
            known = ", ".join(shtab.SUPPORTED_SHELLS)
            parser.error(f"no completion for the shell {values!r}; choose from {known}")
        for action in _actions(parser):
            is_file = action.type is Path or action.metavar in ("FILE", "GROUP")
            if action.metavar in ("DIR", "FOLDER"):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
            elif is_file or action.nargs == argparse.REMAINDER:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(parser, shell=values), flush=True)
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield the arguments of a parser and of its commands."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public access to its arguments
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for command in action.choices.values():
                yield from _actions(command)
