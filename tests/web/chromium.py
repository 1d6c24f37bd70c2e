"""A headless Chromium, driven over its DevTools protocol on two pipes: JSON texts, each ended by NUL."""

import base64
import json
import os
import queue
import shutil
import subprocess
import threading
import time
from pathlib import Path

PATIENCE = 20
NAMES = ("chromium", "chromium-browser", "google-chrome")


def program():
    """Where one is installed; None: nowhere."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Failed(AssertionError):
    """What was waited for did not come, with what was there."""


class Browser:
    """A browser with a profile of its own, which ends with the context."""

    def __init__(self, profile):
        to_read, to_write = os.pipe()
        from_read, from_write = os.pipe()
        # The browser reads at descriptor 3 and writes at 4.
        command = [
            "bash", "-c", f'exec "$@" 3<&{to_read} 4>&{from_write}', "bash", program(),
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-sandbox",
            "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
            "--disable-background-networking", "--disable-component-update", "--lang=en-US", "about:blank",
        ]  # fmt: skip
        log = (Path(profile).parent / "chromium.log").open("w")
        self.process = subprocess.Popen(
            command, pass_fds=(to_read, from_write), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        os.close(to_read)
        os.close(from_write)
        self.to, self.last = to_write, 0
        self.said, self.kept = queue.Queue(), []
        threading.Thread(target=self.listen, args=(from_read,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
            self.process.wait(timeout=PATIENCE)
        except (Failed, OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()

    def listen(self, source):
        rest = b""
        while data := os.read(source, 1 << 16):
            *texts, rest = (rest + data).split(b"\0")
            for text in texts:
                self.said.put(json.loads(text))
        self.said.put(None)

    def hear(self, until):
        try:
            said = self.said.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            said = {}
        if not said:
            raise Failed("the browser does not answer" if said == {} else "the browser has ended")
        return said

    def call(self, method, session=None, **params):
        """Asks, and waits for the answer. Events that come meanwhile are kept."""
        self.last += 1
        asked = {"id": self.last, "method": method, "params": params}
        if session:
            asked["sessionId"] = session
        os.write(self.to, json.dumps(asked).encode() + b"\0")
        # Longer than any condition in a page is waited for.
        until = time.monotonic() + 2 * PATIENCE
        while True:
            said = self.hear(until)
            if said.get("id") != self.last:
                self.kept.append(said)
            elif "error" in said:
                raise Failed(f"{method}: {said['error']['message']}")
            else:
                return said["result"]

    def page(self, width=1280, height=900, dark=False):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.look(width, height, dark)
        return page


class Page:
    """A tab."""

    def __init__(self, browser, session):
        self.browser, self.session = browser, session

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def look(self, width, height, dark):
        """As wide and high, in light or dark."""
        mobile = width < 600
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url):
        """The status with which it was answered."""
        went = self.call("Page.navigate", url=url)
        if "errorText" in went:
            raise Failed(f"{url}: {went['errorText']}")
        self.until("document.readyState === 'complete'")

    def do(self, script):
        """The value of an expression, of a promise too."""
        done = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in done:
            thrown = done["exceptionDetails"]
            raise Failed(f"{script}: {thrown.get('exception', {}).get('description', thrown['text'])}")
        return done["result"].get("value")

    def text(self):
        return self.do("document.body ? document.body.innerText : ''")

    def until(self, condition, seconds=PATIENCE):
        """Waits until an expression is true, and gives its value."""
        # In the page: each change of it is looked at, and what comes without one each 100 ms.
        script = f"""new Promise((done) => {{
            const look = () => {{
                let value;
                try {{ value = ({condition}); }} catch {{ }}
                if (value) {{ clearInterval(timer); clearTimeout(end); done(value); }}
            }};
            const timer = setInterval(look, 50);
            const end = setTimeout(() => {{ clearInterval(timer); done(null); }}, {seconds * 1000});
            look();
        }})"""
        value = self.do(script)
        if value is None:
            raise Failed(f"never so: {condition}\n--- the page ---\n{self.text()[:6000]}")
        return value

    def says(self, text):
        """Waits until the page shows a text."""
        self.until(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, label, within="document"):
        """Presses the button or link with this text."""
        find = f"[...{within}.querySelectorAll('button, a')].find((one) => one.innerText.trim() === {json.dumps(label)})"
        self.until(f"{find} && !{find}.disabled")
        self.do(f"{find}.click()")

    def click(self, find):
        """Clicks in the middle of the element that an expression gives, with a pointer, wherever it stands."""
        self.until(f"{find} && !{find}.disabled")
        x, y = self.do(f"""(({find}).scrollIntoView({{ block: "center", behavior: "instant" }}),
            (({{ x, y, width, height }}) => [x + width / 2, y + height / 2])(({find}).getBoundingClientRect()))""")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def key(self, key, code):
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code, **text)

    def tab(self):
        self.key("Tab", 9)

    def enter(self):
        self.key("Enter", 13)

    def picture(self, path, whole=True):
        taken = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(taken["data"]))

    def complaints(self):
        """What the browser said against the page: what it threw, and what the policy refused."""
        kept = [said for said in self.browser.kept if said.get("sessionId") == self.session]
        entries = [said["params"]["entry"] for said in kept if said["method"] == "Log.entryAdded"]
        thrown = [said["params"]["exceptionDetails"] for said in kept if said["method"] == "Runtime.exceptionThrown"]
        # That a request is refused is the page's own business.
        found = [entry["text"] for entry in entries if entry["source"] != "network"]
        return found + [one.get("exception", {}).get("description", one["text"]) for one in thrown]
