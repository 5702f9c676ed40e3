"""A real Chromium, driven over the two pipes of its debugging protocol: no driver, no web socket, no other package.

https://chromedevtools.github.io/devtools-protocol/
"""

from __future__ import annotations

import base64
import json
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

import pytest

from migverify_lab.cache import cache_directory, file_lock
from migverify_lab.packages import Package, provide

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = Package("chromium", "chromium", "usr/lib/chromium/chromium", "chromium")


def find_chromium() -> tuple[str, dict[str, str]]:
    """Return the program and its environment, unpacked into the cache where there is none on PATH.

    Without either the test is skipped, unless MIGVERIFY_REQUIRE_DB=1 asks for it.
    """
    for name in NAMES:
        found = shutil.which(name)
        if found:
            return found, {}
    prefix = cache_directory() / CHROMIUM.folder
    if os.environ.get("MIGVERIFY_REQUIRE_DB", "") in {"", "0"} and not prefix.exists():
        pytest.skip("there is no Chromium")
    loader, option, libraries, program = provide(CHROMIUM, lambda _: None)
    # It looks for its files beside the program that the kernel started, which is the loader.
    beside = Path(program).with_name("ld.so")
    wrapper = prefix / "chromium.sh"
    libraries += f":{libraries.partition(':')[0]}/pulseaudio"
    command = shlex.join([str(beside), option, libraries, program, f"--browser-subprocess-path={wrapper}"])
    with file_lock(prefix.with_name(".chromium-wrapper.lock")):
        if not wrapper.exists():
            shutil.copy(loader, beside)
            staged = wrapper.with_suffix(".new")
            staged.write_text(f'#!/bin/sh\nexec {command} --no-zygote "$@"\n')
            staged.chmod(0o755)
            staged.rename(wrapper)
    return str(wrapper), {"FONTCONFIG_SYSROOT": str(prefix / "root")}


class Page:
    """One tab: everything that it asked for and complained about is kept."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session
        self.requests: list[str] = []
        self.complaints: list[str] = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def size(self, width: int, height: int, *, dark: bool = False, mobile: bool = False) -> Self:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        return self

    def go(self, url: str) -> Self:
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete'")
        return self

    def ask(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"])
        return answer["result"].get("value")

    def until(self, script: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + seconds
        while True:
            if self.ask(f"Boolean({script})"):
                return
            if time.monotonic() > end:
                raise AssertionError(f"not within {seconds:g} s: {script}\n{self.ask('document.body.innerText')}")
            time.sleep(0.1)

    def text(self, selector: str) -> str:
        return str(self.ask(f"(document.querySelector({json.dumps(selector)}) || {{innerText: ''}}).innerText"))

    def picture(self, path: Path, *, whole: bool = False) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))


_ON_3_AND_4 = """
import fcntl, os, sys
high = [fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """A Chromium without a window; as a context it is ended for certain."""

    def __init__(self, folder: Path) -> None:
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        options = [
            "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder}", "about:blank",
        ]  # fmt: skip
        # The protocol is spoken on the handles 3 and 4, which Python cannot give by number.
        program, environment = find_chromium()
        command = [sys.executable, "-c", _ON_3_AND_4, str(to_read), str(to_write), program, *options]
        self._process = subprocess.Popen(
            command, env={**os.environ, **environment}, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self._number, self._rest = 0, b""
        self._pages: dict[str, Page] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)  # with its helpers
        self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def page(self) -> Page:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = self._pages[session] = Page.__new__(Page)
        page.__init__(self, session)  # type: ignore[misc]
        return page

    def call(self, method: str, session: str = "", **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read(60.0)
            if answer.get("id") == message["id"]:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._told(answer)

    def _read(self, seconds: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            if not select.select([self._in], [], [], seconds)[0]:
                raise AssertionError(f"Chromium said nothing for {seconds:g} s")
            data = os.read(self._in, 1 << 16)
            if not data:
                raise AssertionError("Chromium has ended")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _told(self, event: dict[str, Any]) -> None:
        page = self._pages.get(event.get("sessionId", ""))
        if page is None:
            return
        what, told = event.get("method"), event.get("params", {})
        if what == "Network.requestWillBeSent":
            page.requests.append(told["request"]["url"])
        elif what == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
            page.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")
        elif what == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning", "assert"):
            page.complaints.append(str(told["args"]))
        elif what == "Runtime.exceptionThrown":
            page.complaints.append(str(told["exceptionDetails"]))
