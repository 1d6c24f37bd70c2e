"""states.py LINK STATES: whether the page at a link shows what these agents do, in a real Chromium.

STATES is JSON: [name, state, whether it is its user's to act on] of each. Exit code 3, with a reason: something is missing here.
"""

import json
import sys
import tempfile
from pathlib import Path

import chromium
from chromium import Browser, Failed

# Rows of peers, and of sessions where one has that name, and its card among those that are red.
SHOWN = """([name, state, alarm]) => {
    const is = (text) => text === name || text.endsWith("/" + name);
    const rows = [...document.querySelectorAll(".peer, .session")].filter((row) => is(row.querySelector(".who").textContent));
    const does = (row) => row.querySelector(".does").textContent;
    const card = [...document.querySelectorAll(".card.yours h3")].some((title) => is(title.textContent.split(/:? /)[0]));
    return rows.length > 0 && rows.every((row) => does(row).startsWith(state)) && card === alarm;
}"""


def main():
    link, states = sys.argv[1:]
    if not chromium.program():
        print("no Chromium is installed (apt-get install chromium)", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory(prefix="pbw") as place, Browser(Path(place) / "profile") as browser:
        try:
            page = browser.page()
            page.open(link)
            page.until("document.getElementById('state').dataset.state === 'live'")
            for state in json.loads(states):
                page.until(f"({SHOWN})({json.dumps(state)})")
        except Failed as failed:
            print(failed, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
