// What is a person's to do: what sessions ask, who is stuck, mail that is kept, requests that are late.

import { announce, byId, clock, count, el, keyed, post, put, sentence, span } from "./dom.js";
import { notify } from "./notify.js";
import { called, lasts, titled } from "./people.js";

// Milliseconds for which nothing that has just moved under a pointer counts as meant by it.
const SETTLES = 700;

// A request is late when less of its time is left than this part of it.
const LATE = 0.25;

// So many of them have cards.
const LATE_MAX = 10;

// How a request stands with whom it is for: before the name of who asks, and behind it.
const GOT = {
  read: ["still owes", " an answer"], kept: ["has a request from", ""],
  open: ["has a request from", ", not known to be read"],
};

let last = 0;
let keys = "";
let moved = -Infinity;
let [sessions, peers, more, requests] = [[], [], [], []];

export function show(told) {
  sessions = told;
  draw();
}

export function showPeers(told, others) {
  peers = told;
  more = others;
  draw();
}

export function showRequests(told) {
  requests = told;
  draw();
}

// Whether a session is a peer's. Off the bus it has no name: what the broker said last tells.
const isOf = (session, peer) => peer.name === session.name
  || (!session.name && peer.name === session.wanted && peer.started === session.started_at);

// Where a session's peer is on the bus, that one tells since when.
const peerOf = (session) => peers.find((peer) => isOf(session, peer));

const alarms = (all) => all.map((one) => ({
  key: ["s", one.key || one.name, one.state, one.way_out, one.tried, one.goes_on].join(" "), make: () => alarm(one),
  title: `${titled(one)}: ${[one.state, one.peer && lasts(one.peer)].filter(Boolean).join(" ")}`,
}));

// Sessions of this machine that wait or are stuck. What one asks stands on cards of its own.
function here() {
  const some = sessions.filter((session) => session.alarm && (session.unlisted || !session.approvals.length));
  return alarms(some.map((session) => ({ ...session, peer: peerOf(session) })));
}

// Peers that say so, of which this machine knows nothing, and how many are not told of one by one.
function elsewhere() {
  const some = peers.filter((peer) => peer.alarm && !sessions.some((session) => isOf(session, peer)));
  return [...alarms(some.map((peer) => ({ ...peer, peer }))), ...more.map((title) => (
    rest(title, "They say that they wait for you or are stuck. The list of peers has all of them.")))];
}

// Stands for those that have no cards.
const rest = (title, text) => (
  { key: `o ${title}`, make: () => el("article.card", {}, el("h3"), el("p", {}, text)), title: `… and ${title}` });

function mails() {
  const found = new Map();
  for (const session of sessions) {
    for (const mail of session.held) {
      // A broadcast waits in each session, and is decided about once; another text is another card.
      const key = `m ${mail.from} ${mail.digest || `${session.key} ${mail.id}`}`;
      if (!found.has(key)) found.set(key, { mail, to: [] });
      found.get(key).to.push(titled(session));
    }
  }
  return [...found].map(([key, it]) => ({ key, make: () => held(it), title: mailTitle(it) }));
}

// Of this and of what was denied nothing is a person's to do: neither is counted.
function paused() {
  const some = sessions.filter((session) => session.paused);
  return some.map((session) => ({
    key: ["p", session.key, session.paused.count, session.paused.why].join(" "), make: () => loop(session),
    title: `${count(session.paused.count, "message is", "messages are")} paused at ${titled(session)}`,
  }));
}

// Nothing waits there any more.
function denied() {
  const some = sessions.filter((session) => session.denials);
  return some.map((session) => ({ key: `d ${session.key} ${session.denials}`, title: `${titled(session)} was denied what it asked`,
    make: () => el("article.card", {}, el("h3"), el("p", {}, sentence(session.denials))) }));
}

function stands({ owes, from, got }) {
  const [does, more] = GOT[got];
  return `${called(owes)} ${does} ${called(from || "?")}${more}`;
}

function late() {
  const now = Date.now();
  const some = requests.filter(({ at, until }) => until - now < (until - at) * LATE);
  const left = some.length - LATE_MAX;
  const others = left > 0 ? [rest(`${count(left, "more request is", "more requests are")} late`, "The list of requests has all of them.")] : [];
  return [...some.slice(0, LATE_MAX).map((request) => ({
    key: `r ${request.seq}`, make: () => owed(request), update: (card) => fillOwed(card, request),
    title: stands(request),
  })), ...others];
}

function draw() {
  const approvals = sessions.flatMap((session) => session.approvals.map((request) => (
    { key: `a ${session.key} ${request.request_id} ${session.approve}`, make: () => approval({ session, request }), update: (card) => fillApproval(card, session), title: `${titled(session)} asks${request.questions.length ? "" : `: may it use ${request.tool}?`}` })));
  const own = [...approvals, ...here(), ...mails()];
  const items = [...own, ...elsewhere(), ...late()];
  const list = byId("waiting-list");
  const focused = list.contains(document.activeElement);
  const others = [["Paused", paused()], ["Was denied", denied()]].filter(([, all]) => all.length);
  const shown = [...items, ...others.flatMap(([, all]) => all)];
  byId("waiting").hidden = !shown.length;
  byId("waits").hidden = !items.length;
  // One that is stuck waits for nobody.
  const yours = `${count(items.length, "thing is", "things are")} yours to do`;
  put(byId("waits").firstElementChild, yours);
  // Whatever comes below moves none of them.
  const now = own.map((it) => it.key).join("\n");
  if (now !== keys) moved = performance.now();
  keys = now;
  keyed(list, shown, (it) => it.key, (it) => it.make(), (card, it) => {
    put(card.querySelector("h3"), it.title);
    it.update?.(card);
  });
  // Whoever decided by keyboard goes on from here.
  if (focused && !list.contains(document.activeElement)) byId(items.length ? "waiting-title" : "list-title").focus();
  put(byId("waiting-title"), items.length > 1 ? `Yours to do · ${items.length}` : items.length ? "Yours to do" : others.map(([title]) => title).join(" · "));
  document.title = items.length ? `(${items.length}) peerbus` : "peerbus";
  if (items.length > last) {
    announce(yours);
    notify(yours, items[0].title);
  }
  if (items.length < last) announce(items.length ? `${count(items.length, "thing is", "things are")} still yours to do` : "Nothing is yours to do any more");
  last = items.length;
}

// Ages grow, and requests become late.
setInterval(draw, 10000);

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

function alarm(one) {
  const says = one.alarm === "waits" ? one.way_out || `What it asks is not known here: answer ${one.place || (one.tty ? `at ${one.tty}` : "it there")}` : `Why nothing comes of its mail: ${one.tried || "it does not say"}; ${one.goes_on || `look ${one.place || "where it runs"}, or end it and start it anew`}`;
  return el("article.card.yours", {}, el("h3"), el("p", {}, sentence(says)));
}

function loop(session) {
  return el("article.card", {}, el("h3"), el("p", {}, sentence(session.paused.why)));
}

function owed(request) {
  return el("article.card", {},
    el("h3"), el("p.about"), request.text ? block(request.text, `What ${request.from} asks`) : null);
}

function fillOwed(card, { at, until, state }) {
  const seconds = (ms) => span(Math.max(0, ms) / 1000);
  put(card.children[1], `Asked ${seconds(Date.now() - at)} ago, ${state}. Its time is over in ${seconds(until - Date.now())}.`);
}

function approval({ session, request }) {
  const said = el("p.problem", { role: "alert" });
  const answer = (verdict) => post("/dashboard/approval", {
    session: session.key, request_id: request.request_id, digest: request.digest, ...verdict,
  });
  const questions = request.questions.map((question, at) => asks(question, `q-${session.key}-${request.request_id}-${at}`));
  const reply = deed("Answer", "main", said, () => answer({ decision: "allow", answers: questions.map(chosen) }));
  const why = el("input", { type: "text", maxLength: 1000, id: `why-${session.key}-${request.request_id}` });
  const allow = deed("Allow once", "main", said, () => answer({ decision: "allow" }));
  const always = request.rules.map(({ rule, shown, destination }) =>
    deed(`Allow always: ${shown} (${destination.shown})`, "plain", said, () => answer({ decision: "allow_always", rule, destination: destination.raw })));
  const deny = deed("Deny", "plain", said, () => answer({ decision: "deny", message: why.value || null }));
  const more = [["Path", request.blocked_path], ["Because", request.decision_reason], ["For the agent", request.agent_id]];
  const closed = el("p", {}, `This page may not answer: the gate \`approve\` is closed.${session.place ? ` Answer ${session.place}.` : ""} ${sentence(session.opens)}`);
  const cut = request.cut ? el("p.problem", {}, `… and ${count(request.cut, "more byte", "more bytes")} that are not shown: it can only be denied from here.`) : null;
  const yes = questions.length ? [reply] : [allow, ...always];
  const buttons = [
    el("p.buttons", {}, ...(request.cut ? [] : yes), deny),
    el("p.field", {}, el("label", { htmlFor: why.id }, "What the model is told of a denial"), why),
  ];
  const wants = questions.length || !request.input ? questions : [size(request.input), block(request.input, "What it wants to do")];
  return el("article.card.yours", {},
    el("h3"), el("p"),
    request.description ? el("p", {}, request.description) : null,
    ...wants,
    ...more.filter(([, text]) => text).map(([label, text]) => el("p.about", {}, `${label}: ${text}`)),
    // A dialog stays.
    request.until && !session.place ? el("p.about", {}, `It is denied at ${clock(request.until)}, if nobody answers.`) : null,
    cut, ...(session.approve ? buttons : [closed]), said);
}

// A typed text stays when it stops.
function fillApproval(card, { first }) {
  put(card.children[1], first ? sentence(first) : "");
  card.children[1].hidden = !first;
}

// A question with its options; a text answers it, too.
function asks({ header, question, several, options }, id) {
  const option = ({ label, description }, at) => el("label.option", {},
    el("input", { type: several ? "checkbox" : "radio", name: id, value: String(at + 1) }),
    el("span", {}, label, description ? el("span.about", {}, ` ${description}`) : null));
  const text = el("input", { type: "text", maxLength: 1000, id });
  return el("fieldset.question", {},
    el("legend", {}, header ? `${header}: ${question}` : question), ...options.map(option),
    el("p.field", {}, el("label", { htmlFor: id }, options.length ? "Or in words" : "In words"), text));
}

// What was answered: words, or numbers of options.
function chosen(question) {
  const words = question.querySelector("[type=text]").value.trim();
  return words || [...question.querySelectorAll(":checked")].map(({ value }) => value).join(",");
}

function mailTitle({ mail, to }) {
  const token = mail.token ? ` (token ${mail.token})` : "";
  return `Mail of ${called(mail.from)}${token} for ${to.join(", ")}`;
}

function held({ mail }) {
  const said = el("p.problem", { role: "alert" });
  const answer = (release) => post("/dashboard/held", { ...mail.raw, release });
  const sent = Date.parse(mail.sent_at);
  return el("article.card.yours", {},
    el("h3"),
    el("p.about", {}, `${sent ? `Sent ${clock(sent)}. ` : ""}${mail.within ? `It is a request with ${mail.within} for it. ` : ""}It waits because your rules hold mail of this sender.`),
    size(mail.text),
    block(mail.text, `Text of ${mail.from}`),
    el("p.buttons", {},
      deed("Release", "main", said, () => answer(true)),
      deed("Refuse", "plain", said, () => answer(false))),
    said);
}
