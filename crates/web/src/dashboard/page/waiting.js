// What waits for a person: what sessions ask, and mail of senders about whom that person decides.

import { announce, byId, clock, count, el, keyed, post, put } from "./dom.js";

// Milliseconds for which nothing that has just moved under a pointer counts as meant by it.
const SETTLES = 700;

let last = 0;
let keys = "";
let moved = -Infinity;

export function show(sessions) {
  const approvals = sessions.flatMap((session) => session.approvals.map((request) => ({ session, request })));
  const mails = new Map();
  for (const session of sessions) {
    for (const mail of session.held) {
      // A broadcast waits in each session, and is decided about once; another text is another card.
      const key = `m ${mail.from} ${mail.digest || `${session.key} ${mail.id}`}`;
      if (!mails.has(key)) mails.set(key, { key, mail, to: [] });
      mails.get(key).to.push(session.name || session.id);
    }
  }
  const items = [...approvals.map((it) => ({ key: `a ${it.request.request_id}`, ...it })), ...mails.values()];
  const list = byId("waiting-list");
  const focused = list.contains(document.activeElement);
  byId("waiting").hidden = byId("waits").hidden = !items.length;
  put(byId("waits").firstElementChild, `${count(items.length, "thing waits", "things wait")} for you`);
  const now = items.map((it) => it.key).join("\n");
  if (now !== keys) moved = performance.now();
  keys = now;
  keyed(list, items, (it) => it.key, (it) => (it.request ? approval(it) : held(it)));
  // Whoever decided by keyboard goes on from here.
  if (focused && !list.contains(document.activeElement)) byId(items.length ? "waiting-title" : "list-title").focus();
  put(byId("waiting-title"), items.length > 1 ? `Waits for you · ${items.length}` : "Waits for you");
  document.title = items.length ? `(${items.length}) peerbus` : "peerbus";
  if (items.length > last) announce(`${count(items.length, "thing waits", "things wait")} for you`);
  if (items.length < last) announce(items.length ? `${count(items.length, "thing still waits", "things still wait")} for you` : "Nothing waits for you any more");
  last = items.length;
}

// A button that asks once, and says what came of it where it stands.
function deed(label, kind, said, ask) {
  const button = el(`button.${kind}`, { type: "button" }, label);
  button.addEventListener("click", async (event) => {
    // A key presses what has the focus, wherever that went.
    if (event.detail && performance.now() - moved < SETTLES) {
      put(said, "This has just moved here: look again, then press it.");
      return;
    }
    const all = [...button.closest(".card").querySelectorAll("button")];
    if (all.some((one) => one.hasAttribute("aria-disabled"))) return;
    // A button that is disabled would lose the focus.
    all.forEach((one) => one.setAttribute("aria-disabled", "true"));
    put(said, "");
    try {
      await ask();
      announce(`${label}: done`);
    } catch (error) {
      put(said, error.message);
      all.forEach((one) => one.removeAttribute("aria-disabled"));
    }
  });
  return button;
}

function block(text, label) {
  return el("pre", { tabIndex: 0, role: "group", "aria-label": label }, text);
}

// How much there is to read, where it may be more than the window shows.
function size(text) {
  const lines = text.split("\n").length;
  return lines > 12 || text.length > 1000
    ? el("p.about", {}, `${count(lines, "line", "lines")}, ${count(text.length, "character", "characters")}: all of it stands here, above the buttons.`) : null;
}

function approval({ session, request }) {
  const said = el("p.problem", { role: "alert" });
  const name = session.name || session.id;
  const answer = (verdict) => post("/dashboard/approval", {
    session: session.key, request_id: request.request_id, digest: request.digest, ...verdict,
  });
  const why = el("input", { type: "text", maxLength: 1000, id: `why-${request.request_id}` });
  const allow = deed("Allow once", "main", said, () => answer({ decision: "allow" }));
  const always = request.rules.map(({ rule, shown, destination }) =>
    deed(`Allow always: ${shown} (${destination.shown})`, "plain", said, () => answer({ decision: "allow_always", rule, destination: destination.raw })));
  const deny = deed("Deny", "plain", said, () => answer({ decision: "deny", message: why.value || null }));
  const more = [["Path", request.blocked_path], ["Because", request.decision_reason], ["For the agent", request.agent_id]];
  const closed = el("p.problem", {}, `This page may not answer: the gate \`approve\` is closed. A person opens it with \`approve = true\` in ${session.gates}; until then it is answered in the session's terminal.`);
  const cut = request.cut ? el("p.problem", {}, `… and ${count(request.cut, "more byte", "more bytes")} that are not shown: it can only be denied from here.`) : null;
  const buttons = [
    el("p.buttons", {}, ...(request.cut ? [] : [allow, ...always]), deny),
    el("p.field", {}, el("label", { htmlFor: why.id }, "What the model is told of a denial"), why),
  ];
  return el("article.card", {},
    el("h3", {}, `${name} asks: may it use ${request.tool}?`),
    request.description ? el("p", {}, request.description) : null,
    request.input ? size(request.input) : null,
    request.input ? block(request.input, "What it wants to do") : null,
    ...more.filter(([, text]) => text).map(([label, text]) => el("p.about", {}, `${label}: ${text}`)),
    cut, ...(session.approve ? buttons : [closed]), said);
}

function held({ mail, to }) {
  const said = el("p.problem", { role: "alert" });
  const answer = (release) => post("/dashboard/held", { ...mail.raw, release });
  const sent = Date.parse(mail.sent_at);
  const token = mail.token ? ` (token ${mail.token})` : "";
  return el("article.card", {},
    el("h3", {}, `Mail of ${mail.from}${token} for ${to.join(", ")}`),
    el("p.about", {}, `${sent ? `Sent ${clock(sent)}. ` : ""}It waits because your rules hold mail of this sender.`),
    size(mail.text),
    block(mail.text, `Text of ${mail.from}`),
    el("p.buttons", {},
      deed("Release", "main", said, () => answer(true)),
      deed("Refuse", "plain", said, () => answer(false))),
    said);
}
