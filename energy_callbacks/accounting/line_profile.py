"""Measures host memory line by line with memory_profiler, for functions that the user names."""

import functools
import io
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from inspect import isasyncgenfunction, isgeneratorfunction, unwrap
from pathlib import Path
from types import FunctionType, MethodType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from energy_callbacks.core.extras import check_installed

if TYPE_CHECKING:
    from memory_profiler import LineProfiler


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """A function and the place where it is stored: ``vars(owner)[name]``.

    Attributes:
        address: ``module:function`` or ``module:Class.method``.
        owner: module or class that stores the function.
        name: name of the attribute of ``owner``.
        stored: the stored object: the function, or a ``staticmethod`` or ``classmethod`` around it.
        function: the function without its ``staticmethod`` or ``classmethod``.
        scope: global namespace of the function, if it stores the function and is not the namespace
            of the imported module; otherwise ``None``. In processes that multiprocessing has
            spawned, the main script has two namespaces.
    """

    address: str
    owner: Any
    name: str
    stored: Any
    function: FunctionType
    scope: dict[str, Any] | None

    def replace(self, stored: Any) -> None:
        """Store another object in place of the function."""
        setattr(self.owner, self.name, stored)
        if self.scope is not None:
            self.scope[self.name] = stored


class profile_lines:  # noqa: N801 - used as a verb, like contextlib.suppress
    """Measure the host memory of functions line by line, inside a ``with`` block.

    ::

        with profile_lines("mypackage.data:load", Model.training_step) as profile:
            trainer.fit(model)
        print(profile.text)

    The functions are restored at the end of the block. The memory of the process is queried at each
    executed line of these functions, which makes the functions much slower. Use ``profile_lines``
    to find a memory leak, not to measure energy.

    Args:
        functions: functions to measure: function objects, or names such as ``"module:function"``
            and ``"module:Class.method"``.

    Raises:
        MissingExtraError: if memory_profiler is not installed.
        ValueError: if no function is given, or if a function does not exist, is a generator, is
            defined inside another function, or has no source file.
        TypeError: if an argument is neither a Python function nor the name of a Python function.
    """

    def __init__(self, *functions: str | Callable[..., Any]) -> None:
        check_installed("memory_profiler", extra="memory")
        if not functions:
            raise ValueError("functions to profile: got none; name at least one")
        self._targets = [_target(function) for function in functions]
        self._profiler: LineProfiler | None = None
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        from memory_profiler import LineProfiler

        self._profiler = LineProfiler(backend="psutil")
        with ExitStack() as undo:
            for target in self._targets:
                undo.callback(target.replace, target.stored)
                target.replace(_profiled(target, self._profiler))
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the functions: ``"module:function"`` or ``"module:Class.method"``."""
        return tuple(target.address for target in self._targets)

    @property
    def text(self) -> str:
        """One table by memory_profiler per function that was called; empty if none was called."""
        if self._profiler is None:
            return ""
        from memory_profiler import show_results

        stream = io.StringIO()
        show_results(self._profiler, stream=stream)
        return stream.getvalue()


def _profiled(target: _Target, profiler: "LineProfiler") -> Any:
    """Return the traced function, in a ``staticmethod`` or ``classmethod`` if it was in one."""
    profiler.add_function(unwrap(target.function))
    traced = functools.wraps(target.function)(profiler.wrap_function(target.function))
    is_wrapped = isinstance(target.stored, staticmethod | classmethod)
    return type(target.stored)(traced) if is_wrapped else traced


def _target(function: str | Callable[..., Any]) -> _Target:
    if isinstance(function, str):
        module_name, _, path = function.partition(":")
        if not (module_name and path) or module_name.startswith("."):
            raise ValueError(
                f"functions are named 'module:function' or 'module:Class.method': got {function!r}"
            )
    else:
        module_name, path = _address(function)
    module = owner = _module(module_name)
    *classes, name = path.split(".")
    for class_name in classes:
        owner = vars(_holder(owner, class_name))[class_name]
        if not isinstance(owner, type | ModuleType):
            raise ValueError(
                f"{class_name!r} is neither a class nor a module: got {function!r}; write "
                "'module:function' or 'module:Class.method'"
            )
    owner = _holder(owner, name)
    stored = vars(owner)[name]
    python = _function(stored, path)
    scope = unwrap(python).__globals__
    is_shared = scope is not vars(module) and scope.get(name) is stored
    return _Target(
        address=f"{module_name}:{path}",
        owner=owner,
        name=name,
        stored=stored,
        function=python,
        scope=scope if is_shared else None,
    )


def _address(function: Any) -> tuple[str, str]:
    """Return the name of a function's module, and the function's path in the module."""
    inner = function.__func__ if isinstance(function, MethodType) else function
    module_name = getattr(inner, "__module__", None)
    path = getattr(inner, "__qualname__", None)
    if not (module_name and path):
        raise TypeError(f"only Python functions can be profiled: got {function!r}; name a function")
    if "<" in path:
        raise ValueError(
            f"{path} is a lambda or is defined inside another function, so it cannot be "
            "replaced from outside; profile the enclosing function"
        )
    return module_name, path


def _module(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        # If the named module exists but imports a missing module, the original error is raised.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ValueError(
            f"there is no module {name!r}; write the name as in an import statement"
        ) from error


def _holder(owner: Any, name: str) -> Any:
    """Return the module or class that stores a name: ``owner``, or a base class of ``owner``.

    Raises:
        ValueError: if none of them stores the name.
    """
    places = owner.__mro__ if isinstance(owner, type) else (owner,)
    for place in places:
        if name in vars(place):
            return place
    close = get_close_matches(name, dir(owner), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "check the spelling"
    raise ValueError(f"{owner.__name__!r} has no {name!r}; {hint}")


def _function(stored: Any, path: str) -> FunctionType:
    """Return a Python function without its ``staticmethod`` or ``classmethod``.

    Raises:
        TypeError: if ``stored`` contains no Python function.
        ValueError: if the source of the function is not in a file, or if it is a generator.
    """
    function = stored.__func__ if isinstance(stored, staticmethod | classmethod) else stored
    source = unwrap(function) if callable(function) else function
    if not (isinstance(function, FunctionType) and isinstance(source, FunctionType)):
        raise TypeError(
            f"only Python functions can be profiled: {path} is {stored!r}; name a function"
        )
    if not Path(source.__code__.co_filename).is_file():
        raise ValueError(
            f"the source of {path} is not in a file but in {source.__code__.co_filename!r}; "
            "move the function to a module"
        )
    if isgeneratorfunction(source) or isasyncgenfunction(source):
        raise ValueError(
            f"{path} is a generator, whose lines run after the call has returned; move them to a "
            "function that the generator calls, and name this function"
        )
    return function
