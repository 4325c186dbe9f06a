"""Resources without a function of the author: `Text`, `File` and `Directory`.

Each is a callable that `add_resource` takes like a function. Files are read in a worker thread, again for each request,
so a client receives the present contents.
"""

from collections.abc import Iterator
from os import stat_result
from pathlib import Path, PurePath
from stat import S_ISREG
from typing import Any, Final

from limpet.errors import ConfigError, ResourceNotFound, ToolError
from limpet.server.functions.content import File as FileContents

MOST_BYTES: Final = 8 * 1024 * 1024
MOST_LISTED: Final = 10_000


class Text:
    """A text that does not change."""

    def __init__(self, text: str, *, name: str = "text", mime_type: str = "text/plain") -> None:
        self.__name__: str = name
        self.__doc__ = ""
        self.mime_type: str = mime_type
        self._text = text

    async def __call__(self) -> str:
        return self._text


class File:
    """A file, read for each request."""

    def __init__(
        self, path: str | PurePath, *, mime_type: str | None = None, max_bytes: int = MOST_BYTES
    ) -> None:
        """Serve this file; the MIME type follows from its suffix. A file that is larger than `max_bytes` is refused.

        Raises:
            ConfigError: the path is not a file.
        """
        self._path = Path(path)
        if not self._path.is_file():
            raise ConfigError(f"{self._path}: there is no such file")
        self.__name__: str = self._path.name
        self.__doc__ = ""
        self.mime_type: str = mime_type or FileContents(b"", name=self._path.name).mime_type
        self._most = max_bytes

    def __call__(self) -> FileContents:
        return _contents(self._path, self._most, self.mime_type)


class Directory:
    """The files below a directory: a list of their paths and sizes, and each file by its path.

    Paths that lead out of the directory, also by a symbolic link, do not exist. Names that begin with a dot are left
    out unless the pattern begins with one.
    """

    mime_type: Final = "application/json"

    def __init__(self, path: str | PurePath, *, pattern: str = "*", max_bytes: int = MOST_BYTES) -> None:
        """Serve the files below this directory whose name matches the pattern.

        Larger files than `max_bytes` are refused.

        Raises:
            ConfigError: the path is not a directory.
        """
        self._root = Path(path).resolve()
        if not self._root.is_dir():
            raise ConfigError(f"{path}: there is no such directory")
        self.__name__: str = self._root.name
        self.__doc__ = ""
        self._pattern = pattern
        self._most = max_bytes

    def __call__(self) -> list[dict[str, Any]]:
        found = sorted(self._files())[:MOST_LISTED]
        return [{"path": path, "size": status.st_size} for path, status in found]

    def read(self, path: str) -> FileContents:
        """Return a file by its path below the directory.

        Raises:
            ResourceNotFound: the directory has no such file.
        """
        wanted = PurePath(path)
        if wanted.is_absolute() or "\0" in path or not self._is_shown(wanted):
            raise ResourceNotFound(path)
        found = (self._root / wanted).resolve()
        if not found.is_relative_to(self._root) or not found.is_file():
            raise ResourceNotFound(path)
        return _contents(found, self._most)

    def _files(self) -> Iterator[tuple[str, stat_result]]:
        for path in self._root.rglob("*"):
            below = path.relative_to(self._root)
            if not self._is_shown(below) or not path.resolve().is_relative_to(self._root):
                continue
            try:
                status = path.stat()
            except OSError:
                continue  # It was removed meanwhile, or cannot be read.
            if S_ISREG(status.st_mode):
                yield below.as_posix(), status

    def _is_shown(self, below: PurePath) -> bool:
        if not below.match(self._pattern):
            return False
        return self._pattern.startswith(".") or not any(part.startswith(".") for part in below.parts)


def _contents(path: Path, most: int, mime_type: str | None = None) -> FileContents:
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ToolError(f"{path.name} is larger than the limit of {most:,} bytes")
    return FileContents(data, name=path.name, mime_type=mime_type)
