"""A real nginx in front of a server."""

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.http.serving import wait_until_connected
from tests.programs import program
from tools.ports import free_port

_MAIN: Final = """
daemon off;
master_process off;
pid {place}/nginx.pid;
error_log {place}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {place}/body;
  proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi;
  scgi_temp_path {place}/scgi;
{config}
}}
"""


@contextlib.contextmanager
def nginx(config: str, front: int = 0) -> Iterator[int]:
    """Run nginx with the directives of an `http` block; yield its port.

    `FRONT` in the directives stands for the address; without a port, a free one is chosen.
    """
    front = front or free_port()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "nginx.conf"
        file.write_text(_MAIN.format(place=place, config=config.replace("FRONT", f"127.0.0.1:{front}")))
        popen = subprocess.Popen(
            [program("nginx"), "-p", place, "-c", str(file), "-e", f"{place}/start.log"],
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_connected(front, popen)
            yield front
        finally:
            popen.kill()
            popen.wait()
