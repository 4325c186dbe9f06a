"""Load the server object that TARGET names in a file or a module. An error names the fault and a valid form."""

import asyncio
import contextlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from limpet.auth import Verifier
from limpet.errors import ConfigError
from limpet.ops import tracebacks

if TYPE_CHECKING:
    from limpet.server.served import Served

DEFAULT_NAME: Final = "server"
_FORMS: Final = "TARGET is path/to/file.py:object or package.module:object (object is `server` if left out), or a function that makes one"

_FAILED: Final = 1


_FILES: Final[dict[Path, ModuleType]] = {}
"""The files that were imported, so that two objects of one file come from one module."""


def load(target: str, directory: str = "") -> "Served":
    """Return the server that a target names.

    Relative paths begin at a directory; without one, at the working directory.

    Raises:
        ConfigError: there is no such server.
        SystemExit: the author's code cannot be imported; its error has been printed.
    """
    from limpet.server.served import Served  # noqa: PLC0415 - a heavy import that `--help` does not need

    place, name = split(target)
    module = _imported(place, directory)
    found = getattr(module, name, None)
    if inspect.isroutine(found):
        with _errors_shown(place):
            found = _made(found, target)
    if isinstance(found, Served):
        return found
    from limpet.backs.hosted.frameworks import SUPPORTED, framework_of  # noqa: PLC0415 - not for an object of ours

    if framework_of(found) is not None:
        from limpet.server.hosted import Hosted  # noqa: PLC0415 - needed for objects of other frameworks only

        return Hosted(found, place=place)
    servers = sorted(
        key
        for key, value in vars(module).items()
        if isinstance(value, Served) or framework_of(value) is not None
    )
    hint = f"; it has: {', '.join(f'{place}:{key}' for key in servers)}" if servers else ""
    if found is None:
        raise ConfigError(f"{place} has no object {name!r}{hint or '; make one with server = Server(...)'}")
    raise ConfigError(
        f"{target} is of type {type(found).__name__}, not limpet.Server, and not {SUPPORTED}{hint}"
    )


def _made(make: Callable[..., Any], target: str) -> object:
    """Return the object that a function makes. One that is `async` runs in an event loop of its own, which ends here.

    Raises:
        ConfigError: it needs arguments.
    """
    needed = [item.name for item in inspect.signature(make).parameters.values() if item.default is item.empty]
    if needed:
        raise ConfigError(
            f"{target} is a function that needs {', '.join(needed)}; a function that makes a server takes no argument"
        )
    made = make()
    return asyncio.run(_await_value(made)) if inspect.isawaitable(made) else made


async def _await_value(made: Awaitable[object]) -> object:
    return await made


def load_verifier(target: str, directory: str = "") -> Verifier:
    """Return the function that checks tokens.

    A file is relative to the working directory, a module also to a directory.

    Raises:
        ConfigError: there is no such function.
        SystemExit: the author's code cannot be imported; its error has been printed.
    """
    place, separator, name = target.rpartition(":")
    if not separator:
        raise ConfigError(
            f"the verifier {target!r} names no function: write file.py:name or package.module:name"
        )
    try:
        module = _imported(place, "" if place.endswith(".py") else directory)
    except ConfigError as error:
        raise ConfigError(f"the verifier {target}: {error}") from None
    found = getattr(module, name, None)
    if not callable(found):
        raise ConfigError(f"the verifier {target}: {place} has no function {name!r}")
    verifier: Verifier = found
    return verifier


def split(target: str) -> tuple[str, str]:
    """Return file or module, and object name. The colon of a drive letter is not a separator."""
    place, separator, name = target.rpartition(":")
    if not separator or "/" in name or "\\" in name:
        place, name = target, DEFAULT_NAME
    is_path = place.startswith(".") or "/" in place or "\\" in place
    if not place or not name.isidentifier() or (is_path and not place.endswith(".py")):
        raise ConfigError(f"{target!r} names no server. {_FORMS}")
    return place, name


def _imported(place: str, directory: str) -> ModuleType:
    with _errors_shown(place):
        if place.endswith(".py"):
            return _from_file(Path(directory, place))
        return _from_module(place, directory)


@contextlib.contextmanager
def _errors_shown(place: str) -> Iterator[None]:
    """Print an error of the author's code in one line, with the author's place; a syntax error as Python shows it."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - the author's module may raise anything
        if tracebacks.is_whole() or isinstance(error, SyntaxError):
            sys.stderr.write(f"limpet: {place} cannot be imported\n{tracebacks.text(error)}")
        elif tracebacks.is_ours(error):
            sys.stderr.write(f"limpet: {tracebacks.one_line(error)}\n")
        else:
            hint = _python_name(error) or tracebacks.HINT
            sys.stderr.write(f"limpet: {place} cannot be imported: {tracebacks.one_line(error)} {hint}\n")
        sys.stderr.write(_missing(error, place))
        raise SystemExit(_FAILED) from None


_UNEXPECTED: Final = re.compile(r"Unexpected keyword argument '(\w+[A-Z]\w*)'")
_CAPITAL: Final = re.compile("(?=[A-Z])")


def _python_name(error: Exception) -> str:
    """Return a hint if a type of the protocol was given a name as JSON has it, such as `readOnlyHint`."""
    found = _UNEXPECTED.fullmatch(str(error)) if isinstance(error, TypeError) else None
    return f"(in Python: {_CAPITAL.sub(r'_', found[1]).lower()})" if found else ""


def _missing(error: Exception, place: str) -> str:
    """Return instructions if a module is not installed where limpet runs; empty for any other error."""
    if not isinstance(error, ModuleNotFoundError) or (error.name or "limpet.").startswith("limpet."):
        return ""
    program = place if place.endswith(".py") else f"-m {place}"
    return (
        f"limpet: {sys.executable}, which runs limpet, does not find the module {error.name}. Install it there, "
        "or install limpet where it is, or serve your code as a program with its own Python: "
        f"limpet serve -- python {program}\n"
    )


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"there is no file {path} (looked in {Path.cwd()}). {_FORMS}")
    if (known := _FILES.get(path.resolve())) is not None:
        return known
    # As with `python file.py`, modules beside the file can be imported.
    sys.path.insert(0, str(path.resolve().parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} cannot be imported as a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    _FILES[path.resolve()] = module
    return module


def _from_module(name: str, directory: str) -> ModuleType:
    looked = [path for path in (directory, str(Path.cwd())) if path]
    sys.path[:0] = looked
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Only if the target itself is missing. A missing import inside it is an error of the author's code.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise
        raise ConfigError(
            f"{sys.executable}, which runs limpet, does not find the module {name} (also not in "
            f"{', '.join(looked)}). Install it there, or write the path of a file. {_FORMS}"
        ) from None
