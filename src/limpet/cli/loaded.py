"""The source files of a server: the modules that it has loaded from its own directories, and the files of an error."""

import sys
import sysconfig
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Final

from limpet.cli.behind import ServerSource
from limpet.cli.config.plan import Endpoint
from limpet.cli.options import Options
from limpet.cli.target import split

_INSTALLED: Final = (
    Path(__file__).parents[1],
    *(Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")),
)
"""Where Limpet, Python and the installed packages are: authors do not change them."""


def loaded_files(endpoints: Iterable[Endpoint]) -> list[str]:
    """Return the files of the loaded modules that are in the working directory or in the directory of a target."""
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    return _own(filter(None, files), _directories(endpoints))


def files_in(error: BaseException, endpoints: Iterable[Endpoint]) -> list[str]:
    """Return such files that an error names: those of its frames, and the one with the syntax error."""
    return _own(_named(error), _directories(endpoints))


def named_files(endpoints: Iterable[Endpoint]) -> list[str]:
    """Return the files of the targets, and the files among the words of the programs."""
    return [
        str(file)
        for endpoint in endpoints
        for source, options in _sources(endpoint)
        for file in _candidates(source, options)
        if file.is_file()
    ]


def _sources(endpoint: Endpoint) -> Iterator[tuple[ServerSource, Options]]:
    """Yield the source of a server, and those of its parts."""
    yield endpoint.source, endpoint.options
    yield from ((part.source, part.options) for part in endpoint.source.parts)


def _candidates(source: ServerSource, options: Options) -> Iterator[Path]:
    for word in source.command:
        yield Path(options.cwd or source.directory, word).absolute()
    if source.object:
        place, directory = split(source.object)[0], Path(source.directory).absolute()
        if place.endswith(".py"):
            yield directory / place
        else:
            module = directory.joinpath(*place.split("."))
            yield from (module.with_name(f"{module.name}.py"), module / "__init__.py")


def _directories(endpoints: Iterable[Endpoint]) -> set[Path]:
    found = {Path.cwd()}
    for source in (source for endpoint in endpoints for source, _ in _sources(endpoint)):
        directory = Path(source.directory)
        place = source.object.partition(".py")[0]
        found |= {directory.resolve(), Path(directory, place).resolve().parent}
    return found


def _own(files: Iterable[str], directories: Collection[Path]) -> list[str]:
    """Return those in the directories. A symbolic link keeps its name: it may lead to another file later."""
    paths = {Path(file).absolute() for file in files}
    return sorted(
        str(path)
        for path in paths
        if any(path.is_relative_to(one) or path.resolve().is_relative_to(one) for one in directories)
        and not any(path.resolve().is_relative_to(one) for one in _INSTALLED)
    )


def _named(error: BaseException) -> Iterator[str]:
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, SyntaxError) and seen.filename:
            yield seen.filename
        frame = seen.__traceback__
        while frame is not None:
            yield frame.tb_frame.f_code.co_filename
            frame = frame.tb_next
        seen = seen.__context__
