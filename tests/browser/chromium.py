"""A real Chromium without a window, driven over its DevTools protocol.

Messages go through two pipes (`--remote-debugging-pipe`), each a JSON text that ends with a NUL byte, so no port and no WebSocket is
needed. One process serves many tests: a tab lives in a browser context of its own, so that no storage of an earlier test is in it.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final

from tests.programs import program
from tests.support import BOUND, until

FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--mute-audio"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--no-default-browser-check", "--no-proxy-server"),
)
KEYS: Final = {"Enter": ("Enter", 13, "\r"), "Tab": ("Tab", 9, ""), "Escape": ("Escape", 27, "")}
"""Code, number and text of keys that are no character."""
_FIRST_PIPE: Final = 3
"""Chromium reads descriptor 3 and writes to 4."""
_LAST_SECONDS: Final = 5.0


class Chromium:
    """One browser process."""

    def __init__(self, profile: Path) -> None:
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()
        os.set_blocking(self._in, False)
        # The shell moves the pipes to the descriptors that Chromium expects.
        moved = f'exec {_FIRST_PIPE}<&{theirs_in} {_FIRST_PIPE + 1}>&{theirs_out}; exec "$@"'
        command = [
            program("chromium"),
            *FLAGS,
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        self._process = subprocess.Popen(
            ["bash", "-c", moved, "bash", *command],
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self._numbers = itertools.count(1)
        self._rest = b""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._listeners: dict[str, Callable[[str, Any], None]] = {}

    def close(self) -> None:
        """End the process and its children: they get a moment to end by themselves, so that no zombie stays."""
        os.write(self._out, b'{"id": 0, "method": "Browser.close"}\0')
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_LAST_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    async def send(self, method: str, session: str = "", **params: Any) -> Any:
        """Send a command; return its result."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        os.write(self._out, json.dumps(message).encode() + b"\0")
        try:
            return await answer
        finally:
            del self._answers[number]

    @contextlib.asynccontextmanager
    async def tab(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> AsyncIterator["Tab"]:
        """Open a tab with empty storage; it is closed at the end."""
        loop = asyncio.get_running_loop()
        loop.add_reader(self._in, self._receive)
        try:
            context = (await self.send("Target.createBrowserContext"))["browserContextId"]
            target = (await self.send("Target.createTarget", url="about:blank", browserContextId=context))[
                "targetId"
            ]
            session = (await self.send("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
            tab = Tab(self, session)
            self._listeners[session] = tab.happened
            await tab.prepare(width, height, dark=dark)
            yield tab
            await self.send("Target.disposeBrowserContext", browserContextId=context)
        finally:
            loop.remove_reader(self._in)
            self._listeners.clear()

    def _receive(self) -> None:
        read = os.read(self._in, 1 << 20)
        *texts, self._rest = (self._rest + read).split(b"\0")
        for text in texts:
            message = json.loads(text)
            answer = self._answers.get(message.get("id"))
            if answer is not None and not answer.done():
                if "error" in message:
                    answer.set_exception(AssertionError(f"Chromium refused a command: {message['error']}"))
                else:
                    answer.set_result(message["result"])
            elif listener := self._listeners.get(message.get("sessionId", "")):
                listener(message["method"], message["params"])
        if not read:
            raise AssertionError("Chromium has ended")


class Tab:
    """One page."""

    def __init__(self, browser: Chromium, session: str) -> None:
        self._browser = browser
        self._session = session
        self.complaints: list[str] = []
        """Errors of the page: exceptions, errors of the console, violations of the policy. Refused requests are not among them."""

    async def send(self, method: str, **params: Any) -> Any:
        """Send a command for this page."""
        return await self._browser.send(method, self._session, **params)

    async def prepare(self, width: int, height: int, *, dark: bool) -> None:
        """Set the size and the colours."""
        for domain in ("Page", "Runtime", "Log"):
            await self.send(f"{domain}.enable")
        await self.resize(width, height)
        await self.colours(dark=dark)

    async def resize(self, width: int, height: int) -> None:
        """Give the window another size."""
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def colours(self, *, dark: bool) -> None:
        """Prefer light or dark colours."""
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.send("Emulation.setEmulatedMedia", features=[feature])

    def happened(self, method: str, params: Any) -> None:
        """Keep the errors of the page."""
        if method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["source"] != "network":
            self.complaints.append(params["entry"]["text"])

    async def go(self, url: str) -> None:
        """Load a page."""
        await self.send("Page.navigate", url=url)
        await self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    async def js(self, expression: str) -> Any:
        """Return the value of an expression; it may be a promise."""
        answer = await self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str, seconds: float = BOUND) -> None:
        """Wait until an expression is true in the page."""

        async def holds() -> bool:
            return bool(await self.js(expression))

        await until(holds, seconds, every=0.03, explain=lambda: expression)

    async def text(self, selector: str) -> str:
        """Return the text of an element as it is seen; empty if there is none."""
        return str(await self.js(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def shows(self, selector: str, text: str, seconds: float = BOUND) -> None:
        """Wait until an element has this text in it."""
        await self.until(
            f"(document.querySelector({json.dumps(selector)})?.innerText ?? '').includes({json.dumps(text)})",
            seconds,
        )

    async def press(self, *keys: str) -> None:
        """Press keys one after another: characters, or names of `KEYS`."""
        for key in keys:
            code, number, text = KEYS.get(key, ("", 0, key))
            known = {"key": key, "code": code, "windowsVirtualKeyCode": number}
            await self.send(
                "Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", text=text, **known
            )
            await self.send("Input.dispatchKeyEvent", type="keyUp", **known)

    async def type(self, text: str) -> None:
        """Type a text into the element that has the focus."""
        await self.send("Input.insertText", text=text)

    async def exists(self, selector: str) -> bool:
        """True if there is such an element, and it is visible."""
        return bool(
            await self.js(f"document.querySelector({json.dumps(selector)})?.checkVisibility() ?? false")
        )

    async def click(self, selector: str) -> None:
        """Click in the middle of an element with the mouse."""
        x, y = await self.js(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); e.scrollIntoView({{block: 'center'}}); "
            "const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    async def picture(self, *, whole: bool = False) -> bytes:
        """Return the visible part of the page, or all of it, as PNG."""
        params: dict[str, Any] = {"format": "png"}
        if whole:
            size = (await self.send("Page.getLayoutMetrics"))["cssContentSize"]
            params |= {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        return base64.b64decode((await self.send("Page.captureScreenshot", **params))["data"])


@contextlib.contextmanager
def chromium() -> Iterator[Chromium]:
    """Run a browser with an empty profile."""
    profile = tempfile.mkdtemp(prefix="limpet-chromium-")
    browser = Chromium(Path(profile))
    try:
        yield browser
    finally:
        browser.close()
        shutil.rmtree(profile, ignore_errors=True)
