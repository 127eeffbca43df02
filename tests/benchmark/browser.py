"""A page in headless Chromium, by the DevTools protocol over a pipe: JSON ended by NUL, on descriptors 3 and 4."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 60.0


def chromium() -> str | None:
    return next((found for name in NAMES if (found := shutil.which(name))), None)


def _pipe() -> tuple[int, int]:
    """Of descriptors above those that Chromium is to have them as."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


class Browser:
    """`with Browser(program, folder) as page: page.open(file); page.evaluate("document.title")`."""

    def __init__(self, program: str, folder: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None
        self._number, self._unread = 0, b""
        commands, self._to = _pipe()
        self._from, answers = _pipe()
        log = os.open(folder / "chromium.log", os.O_CREAT | os.O_WRONLY)
        self._process = os.posix_spawn(
            program,
            [
                program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                "--no-first-run", "--disable-background-networking", f"--user-data-dir={folder / 'profile'}",
                "--remote-debugging-pipe", "about:blank",
            ],
            {**os.environ, "HOME": str(folder)},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, commands, 3), (os.POSIX_SPAWN_DUP2, answers, 4),
                (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2),
            ],
            setpgroup=0,
        )  # fmt: skip
        for descriptor in (commands, answers, log):
            os.close(descriptor)

    def __enter__(self) -> Browser:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process, signal.SIGKILL)  # its own group, with every process that it started
        os.waitpid(self._process, 0)
        os.close(self._to)
        os.close(self._from)

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while (answer := self._read()).get("id") != self._number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def _read(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            more = os.read(self._from, 1 << 20) if ready else b""
            assert more, "Chromium does not answer; its log is chromium.log"
            self._unread += more
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))

    def open(self, file: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        phone = width < 600
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.events.clear()
        self.send("Page.navigate", url=file.as_uri())
        end = time.monotonic() + SECONDS
        while self.evaluate("document.readyState") != "complete" and time.monotonic() < end:
            time.sleep(0.05)
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """Errors and warnings on the console, exceptions, and what the page's own policy blocked."""
        found = []
        for event in self.events:
            about = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(about["exceptionDetails"]))
            if event.get("method") == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(about["args"]))
            if event.get("method") == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                found.append(about["entry"]["text"])
        return found

    @property
    def requests(self) -> list[str]:
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [each["request"]["url"] for each in sent]

    def screenshot(self, whole: bool = True) -> bytes:
        return base64.b64decode(self.send("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
