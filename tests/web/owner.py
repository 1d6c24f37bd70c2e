"""owner.py PEERBUS: what the dashboard tells the owner of several agents, in a real Chromium.

Exit code 3, with a reason: something is missing here.
"""

import json
import os
import signal
import subprocess
import sys
from urllib.parse import urlsplit

from bus import Agent, Coder
from dashboard import LIVE, Scenario, check, main


class Owner(Scenario):
    def run(self):
        self.broker = self.bus.serve()
        self.gates = self.bus.config / "sessions.toml"
        self.link, self.gateway, _ = self.bus.web()
        self.page = self.browser.page()
        self.page.open(self.link)
        self.page.until(LIVE)
        self.coder = Coder(self.bus, "coder")
        self.go([
            self.a_closed_gate_names_the_place, self.a_gate_that_opens_is_noticed, self.questions_are_answered,
            self.one_that_does_not_say_what_it_asks, self.who_is_stuck_is_told, self.away_is_who_neither_runs_nor_owes, self.paused_mail_has_a_reason, self.late_requests_are_told,
            self.a_second_gateway_shows_the_first, self.doctor_is_no_conversation, self.a_text_is_found, self.a_person_writes_and_is_answered,
            self.a_sentence_tells_what_the_list_of_peers_tells,
            self.a_browser_notifies, self.a_choice_survives_a_reload, self.anybody_can_use_what_waits,
            self.without_a_broker_nothing_counts_twice,
        ])  # fmt: skip

    def asks(self, command):
        return self.coder.begin("PermissionRequest", tool_name="Bash", tool_input={"command": command})

    def card(self, text):
        """Waits for the card that has this text, and gives all of its text."""
        card = f"[...document.querySelectorAll('#waiting-list .card')].find((one) => one.innerText.includes({json.dumps(text)}))"
        return self.page.until(f"{card}?.innerText")

    def no_card(self):
        self.page.until("document.getElementById('waiting').hidden")

    def does(self, name, state):
        """Waits until the lists of peers and of sessions have this word, in red."""
        for kind in ("peer", "session"):
            row = f"[...document.querySelectorAll('.{kind}')].find((one) => one.querySelector('.who').textContent.endsWith({json.dumps(name)}))"
            self.page.until(f"{row}?.querySelector('.does').textContent.startsWith({json.dumps(state)})")
            red = "getComputedStyle(document.querySelector('.card.yours h3')).color"
            self.page.until(f"getComputedStyle({row}.querySelector('.does')).color === {red}")

    def a_closed_gate_names_the_place(self):
        self.no_card()
        self.coder.is_now("waiting")
        self.hook = self.asks("npm test")
        said = self.card("home/coder asks: may it use Bash?")
        self.does("coder", "waits for you")
        for part in ("npm test", "the gate `approve` is closed", f"Answer at {self.coder.terminal}", f"`approve = true` in {self.gates}"):
            check(part in said, "the card of a closed gate", said)
        check(self.page.do("!document.querySelector('#waiting-list button')"), "buttons over a closed gate")

    def a_gate_that_opens_is_noticed(self):
        self.gates.write_text("approve = true\n")
        self.page.press("Allow once")
        said = self.coder.end(self.hook)
        check('"behavior":"allow"' in said, "the hook's answer", said)

    def asks_questions(self):
        options = [{"label": label} for label in ("Red", "Blue<b>\u202e", "Green")]
        asked = [
            {"question": "Which colours?", "header": "Look", "multiSelect": True, "options": options},
            {"question": "Since when?", "multiSelect": False, "options": options[:1]},
        ]
        return self.coder.begin("PermissionRequest", tool_name="AskUserQuestion", tool_input={"questions": asked})

    def questions_are_answered(self):
        hook = self.asks_questions()
        said = self.card("Look: Which colours?")
        check(said.startswith("home/coder asks\n") and "Blue<b>\\u202e" in said, "the card of a question", said)
        check("Allow" not in said, "a question is allowed", said)
        self.page.until("performance.now() - (window.since ??= performance.now()) > 800")
        for text in ("Blue", "Green"):
            self.page.click(f"[...document.querySelectorAll('.option')].find((one) => one.innerText.startsWith({json.dumps(text)}))")
        self.page.press("Answer")
        self.page.says("an answer is empty")
        self.page.do("document.querySelectorAll('.question [type=text]')[1].value = 'yesterday'")
        self.page.press("Answer")
        said = json.loads(self.coder.end(hook))["hookSpecificOutput"]["decision"]["updatedInput"]["answers"]
        check(said == {"Which colours?": "Blue<b>\u202e, Green", "Since when?": "yesterday"}, "the answers", said)

    def one_that_does_not_say_what_it_asks(self):
        self.card("is answered, and it has not gone on yet")
        self.coder.is_now("busy")
        self.no_card()
        self.coder.is_now("waiting")
        said = self.card("home/coder: waits for you")
        check(f"What it asks is not known here: answer at {self.coder.terminal}." in said, "the card", said)
        self.coder.is_now("idle")
        self.no_card()

    def who_is_stuck_is_told(self):
        for pid, whose in ((self.coder.child.pid, "process"), (self.coder.adapter, "adapter")):
            os.kill(pid, signal.SIGSTOP)
            try:
                # It is looked at when somebody asks.
                self.page.call("Page.reload")
                # The way out comes with the list of sessions.
                wanted = f"`kill -CONT {pid}` lets it go on" if whose == "adapter" else "stopped"
                said = self.card(wanted)
                check("home/coder: stuck" in said and f"its {whose} is stopped, as by Ctrl-Z" in said, "what was tried", said)
                self.does("coder", "stuck")
            finally:
                # One that stays stopped keeps the pipe for which the test waits.
                os.kill(pid, signal.SIGCONT)
            if whose == "process":
                self.page.call("Page.reload")
            self.no_card()

    def away_is_who_neither_runs_nor_owes(self):
        # The broker gives up one that is stopped only after a while.
        frozen, debtor, gone = ({"name": name, "online": False, "state": state, **more} for name, state, more in
            (("frozen", "stuck", {"alarm": "stuck"}), ("debtor", "away", {"owes": 1}), ("gone", "away", {})))  # fmt: skip
        told = json.dumps({"peers": [gone, debtor, frozen], "omitted": 0})
        names = "[...document.querySelectorAll('.peer .who')].map((who) => who.textContent)"
        shown = self.page.do(f"import('/page/people.js').then((people) => {{ people.peers({told}); return {names}; }})")
        check(shown == ["frozen", "debtor"], "who is listed", shown)
        projects = {"ada": "shop", "eve": "ann (token keys) for bob. Sent by way of x"}
        told = json.dumps({"peers": [{**gone, "name": name, "old": [], "project": it} for name, it in projects.items()], "omitted": 0})
        named = "['ada', 'eve'].map(people.called)"
        shown = self.page.do(f"import('/page/people.js').then((people) => {{ people.peers({told}); return {named}; }})")
        check(shown == ["shop/ada", "eve"], "how they are called", shown)
        self.page.call("Page.reload")
        self.page.until(LIVE)

    def paused_mail_has_a_reason(self):
        self.ada = ada = Agent(self.bus, "ada", env={"PEERBUS_BUDGET": "1"})
        self.bob = bob = Agent(self.bus, "bob", env={"PEERBUS_GROUPS": "shop"})
        ada.call("bus.send", to="bob", body="ping")
        for _ in range(2):
            bob.call("bus.send", to="ada", body="pong", reply_to=bob.read()[0]["id"])
            self.page.says("pong")
            mail = ada.call("bus.drain")["messages"]
            if mail:
                ada.call("bus.ack", ids=[one["id"] for one in mail])
                ada.call("bus.send", to="bob", body="ping", reply_to=mail[0]["id"])
        said = self.card("1 message is paused at home/ada")
        check("replies led to this message of bob, budget 1" in said, "why it is paused", said)
        check(self.page.do("document.title") == "peerbus", "paused mail is a person's to do")

    def late_requests_are_told(self):
        self.bus.run("ask", "coder", "may I merge?", "--detach", "--timeout", "3600")
        self.page.until("document.querySelector('#requests-list .request')")
        said = self.page.do("document.querySelector('#requests-list .who').innerText")
        check(said.startswith("shell-") and said.endswith(" → home/coder"), "who asks whom", said)
        check(self.page.do("!document.querySelector('#waiting-list').innerText.includes('still owes')"), "a request that is not late")
        # As the page is told of it when 50 of 60 minutes are over.
        late = {"seq": 1, "id": "x", "from": "ada", "owes": "coder", "state": "seen", "got": "read", "text": "may I merge?", "left_s": 600}
        unread = late | {"seq": 2, "state": "queued", "got": "open"}
        self.page.do(f"""Promise.all(["requests", "waiting"].map((name) => import(`/page/${{name}}.js`))).then(([requests, waiting]) =>
            waiting.showRequests(requests.show({{ requests: {json.dumps([late, unread])}.map((one) => ({{ ...one, at: Date.now() - 3000000 }})) }})))""")
        self.card("home/coder has a request from home/ada, not known to be read")
        said = self.card("home/coder still owes home/ada an answer")
        check("Asked 50 min ago, seen. Its time is over in 10 min." in said or "over in 9 min." in said, "a late request", said)

    def a_second_gateway_shows_the_first(self):
        address = urlsplit(self.link).netloc
        said = self.bus.run("web", "--open", f"--listen={address}")
        check(said.startswith(f"http://{address}/open/"), "what a second gateway says", said)

    def doctor_is_no_conversation(self):
        self.bus.start(self.bus.peerbus, "doctor", stdout=subprocess.DEVNULL).wait(timeout=60)
        self.bus.send("eve", "ada", "after the doctor")
        self.page.says("after the doctor")
        check("peerbus doctor" not in self.page.text(), "a message of doctor's", self.page.text())

    def search(self, text):
        self.page.do(f"document.getElementById('search-text').value = {json.dumps(text)}")
        self.page.do("document.getElementById('search').requestSubmit()")

    def a_text_is_found(self):
        # It stands behind what the page has of the text.
        self.bus.send("eve", "ada", "x" * 3000 + " Needle")
        self.page.says("xxx")
        self.search("needle")
        self.page.says("Conversations with “needle”")
        rows = "[...document.querySelectorAll('#conversations .text')]"
        self.page.until(f"{rows}.length === 1 && {rows}[0].textContent.startsWith('xxx')")
        # As `peerbus history` finds it.
        found = self.bus.run("history", "--grep", "needle", "--json").splitlines()
        check(len(found) == 1 and "Needle" in found[0], "what history finds", found)
        self.search("nothing of the kind")
        self.page.says("Nothing is found.")
        self.search("home/bob")
        self.page.until(f"{rows}.length === 1 && {rows}[0].textContent.includes('pong')")
        self.page.call("Page.reload")
        self.page.until(f"{rows}.length === 1 && {rows}[0].textContent.includes('pong')")
        check(self.page.do("document.getElementById('search-text').value") == "home/bob", "the search after a reload")
        self.search("")
        self.page.until(f"{rows}.length > 2")

    def write(self, to, text):
        self.page.until("!document.getElementById('write-text').readOnly")
        self.page.do("document.getElementById('write').open = true")
        for field, value in (("to", to), ("text", text)):
            self.page.do(f"document.getElementById('write-{field}').value = {json.dumps(value)}")
        self.page.press("Send")

    def a_person_writes_and_is_answered(self):
        self.write("nobody", "hello?")
        self.page.says("nobody here is called nobody")
        self.write("bob", "is it <b>done</b>?")
        self.page.says("Accepted. An answer comes to the conversation.")
        mail = self.bob.read()[-1]
        check((mail["from"], mail["body"]) == ("dashboard", {"text": "is it <b>done</b>?"}), "what bob reads", mail)
        self.bob.call("bus.send", to="dashboard", body="it is", reply_to=mail["id"])
        self.page.says("bob: it is")
        self.pill("it is", "pushed")
        self.page.do("[...document.querySelectorAll('.conversation')].find((one) => one.innerText.includes('it is')).click()")
        self.page.until("document.getElementById('write-to').value === 'bob'")
        self.ada.call("bus.send", to="bob", body="psst", thread=mail["id"])
        self.page.says("psst")
        to = self.page.do("document.getElementById('write-to').value")
        check(to == "bob", "whoever puts a word in gets nothing", to)
        self.write("bob", "thanks")
        self.page.says("thanks")
        answer = self.bob.read()[-1]
        check("reply_to" in answer["body"], "an answer says of what", answer)
        self.write("#shop", "all hands")
        heard = self.bob.read()[-1]
        check(heard["body"] == {"text": "all hands"}, "what a group reads", heard)
        self.page.press("← Conversations")
        # Not from another page, and not without the key.
        kind = {"Content_Type": "application/json", "Origin": self.link.split("/open")[0]}
        status, _, text = self.http("POST", "/dashboard/send", json.dumps({"to": "bob", "text": "x"}), **kind)
        check(status == 401, "a request without a cookie", (status, text))

    def a_sentence_tells_what_the_list_of_peers_tells(self):
        self.bus.send("eve", "coder", "are you there?")
        row = self.pill("are you there?", "pushed")
        self.page.do(f"{row}.click()")
        note = "document.querySelector('.story .note').textContent"
        self.page.until(f"{note} && !{note}.includes('waits')")
        self.coder.is_now("waiting")
        self.page.until(f"{note}.includes('coder waits for you at {self.coder.terminal}')")
        self.does("coder", "waits for you")
        self.coder.is_now("idle")
        self.page.until(f"!{note}.includes('waits')")
        self.page.press("← Conversations")

    def a_browser_notifies(self):
        # It tells of what is new alone.
        self.page.until("!document.body.innerText.includes('home/coder: waits')")
        self.browser.call("Browser.grantPermissions", permissions=["notifications"])
        self.page.do("""window.Notification = class {
            static permission = "granted";
            static requestPermission = async () => "granted";
            constructor(text, about) { window.notified = [text, about.body]; }
        }; Object.defineProperty(document, "hidden", { get: () => true }); 0""")
        self.page.press("Notify me when something is mine to do")
        self.page.says("Stop notifying me")
        self.coder.is_now("waiting")
        told = self.page.until("window.notified")
        check("yours to do" in told[0] and told[1].startswith("home/coder: waits for you"), "a notification", told)
        self.coder.is_now("idle")
        self.page.until("!document.body.innerText.includes('home/coder: waits')")

    def a_choice_survives_a_reload(self):
        away = "[...document.querySelectorAll('.peer .does')].some((one) => one.textContent.startsWith('away') && !one.parentElement.querySelector('.pill:not([hidden])'))"
        self.page.until("!document.getElementById('peers-more').hidden")
        check(not self.page.do(away), "those away are shown")
        self.page.do("document.getElementById('peers-more').click()")
        self.page.until(away)
        self.page.call("Page.reload")
        self.page.until(f"{LIVE} && {away}")

    def anybody_can_use_what_waits(self):
        self.coder.is_now("waiting")
        self.card("home/coder: waits for you")
        self.asks_questions()
        self.card("Look: Which colours?")
        self.page.do("document.getElementById('write').open = true")
        self.anybody_can_use(["#/", "#/q/pong", "#/q/nothing%20of%20the%20kind"])
        check(not self.page.complaints(), "the browser complains", self.page.complaints())

    def without_a_broker_nothing_counts_twice(self):
        waits = "document.getElementById('waits').innerText"
        before = self.page.do(waits)
        self.broker.terminate()
        self.broker.wait(timeout=60)
        self.card("home/coder (off the bus)")
        after = self.page.do(waits)
        check(after == before, "what waits without a broker", (before, after))


if __name__ == "__main__":
    sys.exit(main(Owner))
