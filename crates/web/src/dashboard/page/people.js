// Who is on the bus, and the sessions of this machine.

import { byId, choice, choose, clock, count, el, follow, keyed, put, span } from "./dom.js";

let known = [];
let omitted = 0;
let all = choice("away") === "shown";

// All names of the peer that has or had this one, its present one first.
export function names(name) {
  const peer = known.find((one) => one.name === name) || known.find(({ old }) => old.includes(name));
  return peer ? [peer.name, ...peer.old] : [name];
}

// A name with the project in which its bearer works, as people know it: one that looks like a name, as others
// would read as a part of the sentence.
export function called(name) {
  const project = known.find((peer) => peer.name === name)?.project;
  return project && /^[\w.-]+$/.test(project) && project !== name ? `${project}/${name}` : name;
}

// A session or a peer, as people know it.
export function titled({ name, wanted, id }) {
  if (name) return called(name);
  return wanted ? `${called(wanted)} (off the bus)` : id;
}

export function peers(told) {
  const now = Date.now();
  const since = (seconds) => (seconds === undefined ? null : now - seconds * 1000);
  known = told.peers.map((peer) => ({ ...peer, active: since(peer.activity_s), left: since(peer.away_s) }));
  omitted = told.omitted;
  byId("peers-begun").hidden = !told.begun || !known.some(({ state, client }) => state === "away" && client);
  const waits = (peer) => peer.unseen || 0;
  const first = (peer) => (peer.alarm ? 2 : 0) + (peer.online ? 1 : 0);
  known.sort((a, b) => first(b) - first(a) || waits(b) - waits(a) || a.name.localeCompare(b.name));
  drawPeers();
  drawSessions();
  return known;
}

// For how long a peer has been as it is; nothing where that is not known, or a moment.
export function lasts(peer) {
  const since = peer.state === "away" ? peer.left : peer.active;
  const seconds = (Date.now() - since) / 1000;
  return since === null || seconds < 10 ? "" : span(seconds);
}

function does(state, kept) {
  const some = Object.entries(kept).filter(([, many]) => many);
  return [state, ...some.map(([word, many]) => `${word} ${many}`)].join(", ");
}

function peerItem() {
  return el("li.peer", {},
    el("span.dot"), el("a.who"), el("span.does"), el("span.about"), el("span.paths"), el("span.pill"));
}

function fillPeer(item, peer) {
  const [dot, who, doing, about, paths, queue] = item.children;
  mark(dot, peer);
  mark(doing, peer);
  put(who, peer.name);
  who.href = `#/p/${encodeURIComponent(peer.name)}`;
  put(doing, does([peer.state, lasts(peer)].filter(Boolean).join(" "), { held: peer.held, paused: peer.paused }));
  put(about, [peer.project, peer.branch, peer.client, ...which(peer)].filter(Boolean).join(" · "));
  put(paths, wakes(peer));
  const waits = peer.unseen || 0;
  queue.hidden = !waits;
  queue.className = "pill wait";
  put(queue, `${waits.toLocaleString()} unseen`);
}

// What a peer or session does is seen, too.
function mark(element, { state, alarm }) {
  element.dataset.is = alarm || state;
}

// What tells a session from others of the same project.
function which(peer) {
  const alike = known.filter(({ online, project, branch }) => online && project === peer.project && branch === peer.branch);
  if (!peer.online || alike.length < 2) return [];
  return [peer.tty, peer.pid && `process ${peer.pid}`];
}

function wakes(peer) {
  if (!peer.online || !peer.wake) return "";
  if (peer.wake.length) return `wakes by ${peer.wake.join(", ")}`;
  // A path that fails stands before its reason.
  const what = peer.unwoken?.includes(": ") ? "not woken now" : "reads when it looks";
  return peer.unwoken ? `${what}: ${peer.unwoken}` : what;
}

// One that is stopped is not away.
const isOfNote = (peer) => peer.state !== "away" || peer.unacked || peer.owes;

function drawPeers() {
  const idle = known.filter((peer) => !isOfNote(peer));
  const shown = all ? known : known.filter(isOfNote);
  byId("peers-empty").hidden = shown.length > 0;
  keyed(byId("peers"), shown, (peer) => peer.name, peerItem, fillPeer);
  const more = byId("peers-more");
  more.hidden = !idle.length && !omitted;
  const others = omitted ? `; ${omitted.toLocaleString()} more are not listed` : "";
  put(more, all ? `Hide who is away${others}` : `Show ${idle.length} more that are away${others}`);
}

byId("peers-more").addEventListener("click", () => {
  all = !all;
  choose("away", all ? "shown" : "");
  drawPeers();
});
// Ages grow.
setInterval(drawPeers, 10000);

let live = [];

function sessionItem(session) {
  return el("li.session", {},
    el("a.who", { href: `#/s/${encodeURIComponent(session.key)}` }), el("span.does"), el("span.about"), el("span.problem"));
}

function fillSession(item, session) {
  const [who, doing, about, problem] = item.children;
  put(who, titled(session));
  put(doing, does(session.state, { held: session.held.length, paused: session.paused?.count }));
  mark(doing, session);
  put(about, [session.client, session.cwd].filter(Boolean).join(" · "));
  const denied = (session.denied || []).map(({ at, says }) => `${clock(at)} ${says}`);
  put(problem, [session.silent || session.refused || [], denied].flat().join("; "));
  problem.hidden = !problem.textContent;
}

export function sessions(told) {
  live = [...told].sort((a, b) => Boolean(b.alarm) - Boolean(a.alarm));
  drawSessions(true);
}

function drawSessions(read = Boolean(live.length)) {
  if (!read) return;
  byId("sessions-empty").hidden = live.length > 0;
  keyed(byId("sessions"), live, (session) => session.key, sessionItem, fillSession);
  if (watched) about();
}

let watched = null;
let stream = null;
const EVENTS_MAX = 500;

const SAID = {
  // A turn's text is the user's, a peer's or a program's: that the client has it as its user's says nothing.
  message: (event) => [event.role === "user" ? event.senders || "to the agent" : "agent", event.content],
  tool_call: (event) => [`calls ${event.tool}`, event.input],
  tool_result: (event) => [event.is_error ? "result, failed" : "result", event.content],
  status: (event) => ["status", event.state],
  bus: (event) => ["message", `${event.from ? `from ${event.from}` : `to ${event.to || "?"}`}: ${event.stage} · ${event.id.slice(0, 12)}…`],
  approval_request: (event) => ["asks", `may it use ${event.tool}?`],
  approval_resolved: (event) => ["answered", `${event.decision || "over"}, by ${event.by}${event.updatedInput ? `, with ${event.updatedInput} in its place` : ""}`],
  gap: (event) => ["", `${count(event.missed, "event is", "events are")} missing`],
};

function show(event) {
  const said = SAID[event.type]?.(event);
  if (!said) return;
  const list = byId("watch-events");
  const at = Date.parse(event.timestamp);
  const [word, text] = said;
  // Who reads further up stays there.
  const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
  list.append(el("li", { className: event.type },
    el("span.when", {}, at ? clock(at) : ""), el("span.word", {}, word), el("span.says", {}, text ?? "")));
  while (list.children.length > EVENTS_MAX) list.firstElementChild.remove();
  if (atEnd) list.scrollTop = list.scrollHeight;
}

function about() {
  const session = live.find(({ key }) => key === watched);
  put(byId("watch-title"), session ? titled(session) : "A session that has ended");
  if (session) put(byId("watch-about"), [session.client, session.cwd, session.state].filter(Boolean).join(" · "));
}

export function watch(key) {
  if (key === watched) return;
  watched = key;
  stream?.abort();
  byId("watch-events").replaceChildren();
  if (!key) return;
  about();
  const { signal } = (stream = new AbortController());
  const over = (why) => byId("watch-events").append(el("li.over", {}, el("span.says", {}, why)));
  const on = (kind, data) => (kind === "event" ? show(data) : over(data.why));
  follow(`/dashboard/watch?session=${encodeURIComponent(key)}`, on, signal).catch((error) => {
    if (!signal.aborted) over(error.message);
  });
}
