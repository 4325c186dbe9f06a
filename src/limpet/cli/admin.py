"""`--admin`: the address and the token of the admin surface, from the options of the process."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from limpet.cli.process_options import ProcessOptions
from limpet.cli.secrets import admin_token
from limpet.cli.sockets import tls_of
from limpet.config import LOOPBACK_HOSTS, AdminSettings
from limpet.errors import ConfigError

if TYPE_CHECKING:
    from limpet.ops.admin.address import AdminAddress


@contextlib.contextmanager
def admin(process: ProcessOptions) -> Iterator["AdminAddress | None"]:
    """Open the admin surface's socket while the block runs; None: it was not asked for.

    Raises:
        ConfigError: the options cannot work.
    """
    hosts = process.admin_hosts or ()
    if process.admin is None:
        for option, value in (("--admin-token-file", process.admin_token_file), ("--admin-host", hosts)):
            if value:
                raise ConfigError(f"{option} needs --admin HOST:PORT")
        yield None
        return
    from limpet.ops.admin.address import open_admin  # noqa: PLC0415 - imported only by this command

    settings = AdminSettings(
        address=process.admin,
        token=admin_token(process.admin_token_file),
        allowed_hosts=(*LOOPBACK_HOSTS, *hosts) if hosts else LOOPBACK_HOSTS,
    )
    with open_admin(settings, tls_of(process)) as surface:
        yield surface
