"""Profiles host memory line by line for selected functions, with memory_profiler."""

import functools
import io
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from memory_profiler import LineProfiler


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A function and where it is stored: ``vars(owner)[name] is kept``.

    Attributes:
        address: its name, as ``"module:function"``.
        scope: the globals of its code, if they are not those of its module. That is so for the
            main script in a process that multiprocessing has spawned. ``None`` otherwise.
        owner: module or class.
        name: in the owner.
        kept: the stored object, such as a ``staticmethod``.
        function: the function itself.
    """

    address: str
    scope: dict[str, Any] | None
    owner: Any
    name: str
    kept: Any
    function: FunctionType


class profile_lines:  # noqa: N801 - used as a verb, like contextlib.suppress
    """Profile functions line by line inside the block; afterwards they are restored.

    ::

        with profile_lines("mypackage.data:load", Model.training_step) as profile:
            trainer.fit(model)
        print(profile.text)

    Each line of such a function asks the operating system for the memory of the process, which
    slows the function down a lot. This serves to find leaks, not to measure energy.

    Args:
        functions: ``"module:function"`` or ``"module:Class.method"``, or the function itself.

    Raises:
        ValueError: if a name does not exist, or its source is not in a file.
        TypeError: if it is not a Python function.
    """

    def __init__(self, *functions: str | Callable[..., Any]) -> None:
        if not functions:
            raise ValueError("no function to profile: got none; name at least one")
        self._targets = [_target(function) for function in functions]
        self._profiler: LineProfiler | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        from memory_profiler import LineProfiler

        self._profiler = LineProfiler(backend="psutil")
        with ExitStack() as undo:
            for target in self._targets:
                undo.callback(_put, target, target.kept)
                _put(target, _followed(target, self._profiler))
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @property
    def names(self) -> tuple[str, ...]:
        """The functions as ``"module:function"`` or ``"module:Class.method"``."""
        return tuple(target.address for target in self._targets)

    @property
    def text(self) -> str:
        """The tables of memory_profiler for all functions that have run; empty if none has."""
        if self._profiler is None:
            return ""
        from memory_profiler import show_results

        stream = io.StringIO()
        show_results(self._profiler, stream=stream)
        return stream.getvalue()


def _put(target: _Target, function: Any) -> None:
    setattr(target.owner, target.name, function)
    if target.scope is not None:
        target.scope[target.name] = function


def _followed(target: _Target, profiler: "LineProfiler") -> Any:
    """The function with line tracing while it runs, in the same kind of wrapper as before."""
    profiler.add_function(unwrap(target.function))
    follow = functools.wraps(target.function)(profiler.wrap_function(target.function))
    is_wrapped = isinstance(target.kept, staticmethod | classmethod)
    return type(target.kept)(follow) if is_wrapped else follow


def _target(function: str | Callable[..., Any]) -> _Target:
    if isinstance(function, str):
        module_name, separator, path = function.partition(":")
        if not (separator and module_name and path):
            raise ValueError(
                f"functions are named 'module:function' or 'module:Class.method': got {function!r}"
            )
    else:
        module_name, path = _address(function)
    owner = kept = _module(module_name)
    for name in path.split("."):
        owner, kept = _stored(kept, name)
    function = _python(kept, path)
    scope = unwrap(function).__globals__
    return _Target(
        address=f"{module_name}:{path}",
        owner=owner,
        scope=scope if scope.get(name) is kept and scope is not vars(owner) else None,
        name=name,
        kept=kept,
        function=function,
    )


def _address(function: Any) -> tuple[str, str]:
    inner = function.__func__ if isinstance(function, MethodType) else function
    module_name = getattr(inner, "__module__", None)
    path = getattr(inner, "__qualname__", None)
    if not (module_name and path):
        raise TypeError(f"only Python functions can be profiled: got {function!r}; name a function")
    if "<" in path:
        raise ValueError(
            f"{path} is made inside another function or a lambda and cannot be replaced from "
            "outside; profile the function around it"
        )
    return module_name, path


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # An import error inside the named module is shown unchanged.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ValueError(
            f"there is no module {name!r}; write the name as you would import it"
        ) from error


def _stored(owner: Any, name: str) -> tuple[Any, Any]:
    """The module or class that stores a name, perhaps a base class, and the stored object."""
    for place in owner.__mro__ if isinstance(owner, type) else (owner,):
        if name in vars(place):
            return place, vars(place)[name]
    close = get_close_matches(name, dir(owner), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "check the spelling"
    raise ValueError(f"{owner.__name__!r} has no {name!r}; {hint}")


def _python(kept: Any, path: str) -> FunctionType:
    function = kept.__func__ if isinstance(kept, staticmethod | classmethod) else kept
    source = unwrap(function) if callable(function) else function
    if not (isinstance(function, FunctionType) and isinstance(source, FunctionType)):
        raise TypeError(f"only Python functions can be profiled: {path} is {kept!r}")
    if not Path(source.__code__.co_filename).is_file():
        raise ValueError(
            f"the source of {path} is not in a file but in {source.__code__.co_filename!r}; "
            "move the function to a module"
        )
    return function
