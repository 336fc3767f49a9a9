"""A headless Chromium, driven over a pipe by its DevTools protocol: no driver, no port, no further package."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SWITCHES = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-extensions", "--disable-background-networking", "--disable-component-update",
    "--remote-debugging-pipe", "about:blank",
)  # fmt: skip


def installed() -> str | None:
    """Return the browser that is here, ``None`` where there is none."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(installed() is None, reason="no Chromium is installed here (Debian: apt install chromium)"),
    pytest.mark.timeout(120),
]
"""Of each module whose tests open one."""


class Browser:
    """One page in a browser; ``console`` gathers what it logs as errors or warnings, ``loaded`` what it asks for."""

    def __init__(self, profile: Path, *, timeout_s: float = 60) -> None:
        program = installed()
        assert program is not None
        self._until = time.monotonic() + timeout_s
        self._count = 0
        self._rest = b""
        self._session = ""
        self.console: list[str] = []
        self.loaded: list[str] = []
        theirs, self._write = self._pipe()
        self._read, answers = self._pipe()
        # Chromium reads from 3 and writes to 4.
        shell = f'exec "$@" 3<&{theirs} 4>&{answers}'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, "bash", program, f"--user-data-dir={profile}", *SWITCHES],
            pass_fds=(theirs, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(theirs)
        os.close(answers)
        os.set_blocking(self._read, False)

    @staticmethod
    def _pipe() -> tuple[int, int]:
        ends = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]  # 3 and 4 are taken
        for end in ends:
            os.close(end)
        return high[0], high[1]

    def __enter__(self) -> Self:
        (page,) = [one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._write)
        os.close(self._read)
        try:
            self._process.wait(5)  # it ends with its pipe
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def open(self, path: Path) -> None:
        """Load a file and wait until its scripts ran."""
        self.call("Page.navigate", url=path.as_uri())
        while self.run("document.readyState + location.protocol") != "completefile:":
            time.sleep(0.02)

    def run(self, expression: str) -> Any:
        """Return the value of a JavaScript expression."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def size(self, width: int, height: int, *, phone: bool = False) -> None:
        """Set the size of the window in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self._settle()

    def media(self, medium: str = "", *, dark: bool = False) -> None:
        """Show the page as on a screen or in print, light or dark."""
        theme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[theme])
        self._settle()

    def press(self, key: str) -> None:
        """Press and release a key."""
        text = {"text": key} if len(key) == 1 else {}
        code = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "Home": 36}.get(key, 0)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text)

    def point(self, x: float, y: float, *, click: bool = False) -> None:
        """Move the mouse to a place in the window, and click there."""
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if click else ())):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    def picture(self, path: Path, *, height: int | None = None) -> None:
        """Write what is shown, down to ``height`` CSS pixels or to the end, as PNG."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": height or size["height"], "scale": 1}
        shot = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def printed(self) -> bytes:
        """Return the page as a PDF."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def _settle(self) -> None:
        """Wait until what was changed is laid out, and the page's own listeners have seen it."""
        for _ in range(2):
            self.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0, 0)))")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            assert time.monotonic() < self._until, "the browser took too long"
            assert self._process.poll() is None, f"the browser ended with {self._process.returncode}"
            try:
                self._rest += os.read(self._read, 1 << 20)
            except BlockingIOError:
                time.sleep(0.005)
        message, _, self._rest = self._rest.partition(b"\0")
        told: dict[str, Any] = json.loads(message)
        self._note(told.get("method", ""), told.get("params", {}))
        return told

    def _note(self, event: str, told: dict[str, Any]) -> None:
        if event == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            self.console.append(told["entry"]["text"])
        elif event == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            self.console.append(json.dumps(told["args"]))
        elif event == "Runtime.exceptionThrown":
            self.console.append(json.dumps(told["exceptionDetails"]))
        elif event == "Network.requestWillBeSent":
            self.loaded.append(told["request"]["url"])
