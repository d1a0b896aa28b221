"""A headless Chromium, driven over the DevTools protocol.

The protocol runs over two pipes of the browser (`--remote-debugging-pipe`): no package, no driver program and no port is
needed, and nobody else on the machine can reach the browser.
"""

import base64
import itertools
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from . import waits

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
           "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
           "--force-color-profile=srgb", "--remote-debugging-pipe")


def only_with_chromium():
    """Skips a module's tests where there is none. Where nothing may be missing, as in CI, that is an error."""
    missing = "" if any(map(shutil.which, NAMES)) else "Chromium is missing: scripts/prerequisites browser"
    if missing and os.environ.get("SHUNT_SKIP") == "nothing":
        raise RuntimeError(missing)
    return pytest.mark.skipif(bool(missing), reason=missing or "nothing is missing")


class Failed(RuntimeError):
    """The browser refused a command, or a script of a test threw."""


class Browser:
    """One browser with one page. `told` has what the browser says of faults of the page: its errors and its violated policies."""

    def __init__(self, directory: Path):
        self.directory, self.told = directory, []
        self.process = self.session = None
        self._numbers, self._bytes = itertools.count(1), b""

    def __enter__(self) -> "Browser":
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()

        # The browser reads commands from file 3 and writes answers to file 4.
        def place() -> None:
            high = [os.dup(file) for file in (commands, answers)]
            for file, number in zip(high, (3, 4)):
                os.dup2(file, number)

        program = next(filter(None, map(shutil.which, NAMES)))
        with open(self.directory / "browser.log", "wb") as log:
            self.process = subprocess.Popen([program, *OPTIONS, f"--user-data-dir={self.directory / 'profile'}", "about:blank"],
                                            stdin=subprocess.DEVNULL, stdout=log, stderr=log, close_fds=False,
                                            start_new_session=True, preexec_fn=place)
        os.close(commands)
        os.close(answers)
        page = next(target for target in self.command("Target.getTargets")["targetInfos"] if target["type"] == "page")
        self.session = self.command("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.command(f"{domain}.enable")
        return self

    def __exit__(self, *_) -> None:
        for file in (self._commands, self._answers):
            os.close(file)
        try:
            self.process.wait(5)  # it ends with its pipe
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(60)

    def command(self, method: str, **parameters) -> dict:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + waits.DEADLINE_SECONDS
        while True:
            answer = self._message(deadline)
            if answer.get("id") == number:
                if "error" in answer:
                    raise Failed(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _message(self, deadline: float) -> dict:
        while b"\0" not in self._bytes:
            if not select.select([self._answers], [], [], max(0, deadline - time.monotonic()))[0]:
                raise waits.Late("the browser does not answer")
            more = os.read(self._answers, 1 << 20)
            if not more:
                raise Failed(f"the browser has ended:\n{(self.directory / 'browser.log').read_text(errors='replace')}")
            self._bytes += more
        message, self._bytes = self._bytes.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event: dict) -> None:
        if event.get("method") == "Log.entryAdded":
            entry = event["params"]["entry"]
            self.told.append(f"{entry['source']}: {entry['text']} {entry.get('url', '')}")
        elif event.get("method") == "Runtime.exceptionThrown":
            self.told.append(json.dumps(event["params"]["exceptionDetails"]))

    def open(self, address: str) -> None:
        if why := self.command("Page.navigate", url=address).get("errorText"):
            raise Failed(f"{address}: {why}")
        self.until(f"document.readyState === 'complete' && location.href === '{address}'", f"{address} is loaded")

    def leave(self) -> None:
        """Ends the page, and forgets what was told of it: it goes on asking its server, which may have ended."""
        self.open("about:blank")
        self.told.clear()

    def run(self, script: str):
        """The value of an expression."""
        done = self.command("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise Failed(f"{script}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def until(self, script: str, what: str):
        """Waits until an expression is true, and returns its value."""
        return waits.until(lambda: self.run(script), what, every_seconds=0.05,
                           told=lambda: f"{self.run('document.body.innerText')}\n{self.told}")

    def press(self, key: str, times: int = 1) -> None:
        """Presses a key: Tab, Enter, Escape."""
        codes = {"Tab": 9, "Enter": 13, "Escape": 27, " ": 32}
        for _ in range(times):
            texts = {"text": {"Enter": "\r", " ": " "}[key]} if key in ("Enter", " ") else {}
            self.command("Input.dispatchKeyEvent", type="keyDown", key=key, windowsVirtualKeyCode=codes[key], **texts)
            self.command("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=codes[key])

    def type(self, text: str) -> None:
        self.command("Input.insertText", text=text)

    def prefer(self, scheme: str) -> None:
        """Makes the reader prefer `light` or `dark`."""
        self.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def keep_picture(self, name: str, height: int = 640) -> None:
        """Keeps a picture for docs/images, if SHUNT_PICTURES names a directory. With SHUNT_PICTURES_SECONDS it waits
        before, so that the curves have points."""
        if directory := os.environ.get("SHUNT_PICTURES"):
            time.sleep(float(os.environ.get("SHUNT_PICTURES_SECONDS", "0")))
            self.picture(Path(directory) / f"{name}.png", 1100, height)

    def picture(self, file: Path, width: int, height: int) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        file.write_bytes(base64.b64decode(self.command("Page.captureScreenshot", format="png")["data"]))
