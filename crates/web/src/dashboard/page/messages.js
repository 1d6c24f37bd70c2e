// Conversations, their messages, and what became of each.

import { announce, byId, clock, count, el, get, keyed, moment, put, sentence, soon, took, whom } from "./dom.js";
import { called, names } from "./people.js";
import * as write from "./write.js";

// Messages by their number at the broker.
const all = new Map();
// Where older ones begin; null: there are none.
let before = null;
const ALL_MAX = 5000;
// The conversation that is open, the peer whose conversations are listed, what is searched, with the
// messages that the broker found and where older ones begin, and messages whose story is open.
let opened = null;
let peer = null;
let search = { text: "", found: new Set(), before: null };
const stories = new Set();

// As whom this page writes.
const PAGE = "dashboard";

const keyOf = (message) => message.thread || message.reply_to || message.id;

export function add(message) {
  const known = all.get(message.seq);
  // A text that was asked for whole stays.
  if (known && !known.more && message.more) Object.assign(message, { text: known.text, more: 0 });
  message.told = Date.now();
  all.set(message.seq, message);
  if (!known && loaded && keyOf(message) === opened) announce(`${called(message.from)} wrote`);
  // The oldest go, and come back when they are asked for.
  if (all.size > ALL_MAX) all.delete(Math.min(...all.keys()));
  draw();
}

// Messages that went on since they were told. Those that are shown are asked for again, one after another,
// however much happens.
const stale = new Set();
let refreshing = false;

async function refresh(shown) {
  const now = refreshing ? [] : shown.filter(({ seq }) => stale.delete(seq));
  if (!now.length) return;
  refreshing = true;
  for (const { seq, id } of now) {
    try {
      add(await get(`/dashboard/message?seq=${seq}&id=${encodeURIComponent(id)}`));
    } catch {
      // What is shown was so: it is asked for again with the next step of any.
      stale.add(seq);
    }
  }
  refreshing = false;
  draw();
}

export function step({ seq }) {
  if (!all.has(seq)) return;
  stale.add(seq);
  draw();
}

// What peers do, as far as something is said of it.
let states = new Map();

// Who is there has changed, and with it what is said of messages that are not at their end.
export function stand(peers) {
  const now = new Map(peers.map(({ name, state }) => [name, state]));
  const isOther = ({ to }) => to && states.size && now.get(to) !== states.get(to);
  const open = [...all.values()].filter((message) => message.steps.some(isOther));
  open.filter(({ ended }) => !ended).forEach(({ seq }) => stale.add(seq));
  states = now;
  draw();
}

async function ask(query) {
  const page = await get(`/dashboard/messages?${query}`);
  page.messages.forEach(add);
  return page;
}

let loaded = false;

export async function load() {
  const page = await ask("");
  if (!loaded) before = page.before;
  loaded = true;
  if (opened) await ask(`thread=${encodeURIComponent(opened)}`);
  draw();
}

// For whom a message is: of one that was sent to an old name, the name of its recipient.
const got = ({ to, steps }) => (/^[*#]/.test(to) ? to : steps.findLast((step) => step.to)?.to || to);

// Has the broker search, from its newest message on or before one.
async function look(from) {
  const mine = search;
  const page = await ask(`text=${encodeURIComponent(mine.text)}${from ? `&before=${from}` : ""}`);
  page.messages.forEach(({ seq }) => mine.found.add(seq));
  [mine.before, mine.looked] = [page.before, true];
  draw();
}

// Whether a message is searched: for its text, who wrote it, to whom, in which project.
function isFound(message) {
  const text = search.text.toLowerCase();
  const named = () => [message.from, whom(message.to), got(message)].some((name) => called(name).toLowerCase().includes(text));
  return search.found.has(message.seq) || message.text?.toLowerCase().includes(text) || named();
}

let asking = false;
byId("older").addEventListener("click", async () => {
  if (asking) return;
  asking = true;
  try {
    if (search.text) await look(search.before);
    else before = (await ask(`before=${before}`)).before;
  } catch (error) {
    announce(error.message);
  }
  asking = false;
  draw();
});

// Conversations, the one with the newest message first.
function conversations() {
  const found = new Map();
  const sorted = [...all.values()].sort((a, b) => a.seq - b.seq);
  for (const message of sorted) {
    const key = keyOf(message);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(message);
  }
  return [...found].map(([key, list]) => ({ key, list, last: list.at(-1) })).sort((a, b) => b.last.seq - a.last.seq);
}

function between(list) {
  // One that has another name now is the same.
  const now = (name) => called(names(name)[0]);
  const [one, two, ...more] = new Set(list.flatMap((message) => [now(message.from || "?"), now(whom(got(message)))]));
  if (!two) return one;
  if (!more.length) return list.length > 1 ? `${one} and ${two}` : `${one} → ${two}`;
  return `${one}, ${two} and ${count(more.length, "other", "others")}`;
}

function said(message) {
  return message.hidden ? `Not shown: ${message.hidden}` : message.text;
}

function pill(element, { state, tone }) {
  put(element, state);
  element.className = `pill ${tone || ""}`;
}

function row({ key }) {
  const link = el("a.conversation", { href: `#/c/${encodeURIComponent(key)}` },
    el("span.who", {}, el("span"), el("span.many")), el("span.when"), el("span.text"), el("span.pill"));
  return el("li", {}, link);
}

// What was searched is what is shown of a conversation.
const shows = ({ list, last }) => (search.text && list.findLast(isFound)) || last;

function fill(item, conversation) {
  const { list } = conversation;
  const last = shows(conversation);
  const [who, when, text, state] = item.firstElementChild.children;
  put(who.firstElementChild, between(list));
  put(who.lastElementChild, list.length > 1 ? ` · ${list.length} messages` : "");
  put(when, clock(last.at));
  put(text, (list.length > 1 && !last.hidden ? `${called(last.from)}: ` : "") + said(last).slice(0, 240));
  text.classList.toggle("hidden-text", Boolean(last.hidden));
  pill(state, last);
}

function stepItem(message, step) {
  const at = step.at ? Date.parse(step.at) : message.at;
  const later = Math.max(0, at - message.at);
  return el("li", { className: step.tone || "" },
    el("span.word", {}, step.state), step.to && /^[*#]/.test(message.to) ? el("span.to", {}, ` at ${step.to}`) : null,
    el("span.says", {}, step.says),
    el("span.when", {}, later ? el("span", {}, `+${took(later)} `) : null, moment(at)));
}

function messageItem(message) {
  const { seq } = message;
  const id = `story-${seq}`;
  const toggle = el("button.quiet", { type: "button", "aria-controls": id, "aria-expanded": "false" }, "Story");
  toggle.addEventListener("click", () => {
    if (!stories.delete(seq)) stories.add(seq);
    draw();
  });
  const whole = el("button.quiet.whole", { type: "button", hidden: true });
  whole.addEventListener("click", async () => {
    add(await get(`/dashboard/message?whole=true&seq=${seq}&id=${encodeURIComponent(message.id)}`));
  });
  return el("li.message", {},
    el("p.head", {}, el("span.who"), moment(message.at)),
    message.meta.length ? el("p.about", {}, `It says of itself: ${message.meta.join(" · ")}`) : el("p", { hidden: true }),
    el("div.body", { tabIndex: 0, role: "group", "aria-label": `Text of ${called(message.from || "?")}` }), whole,
    el("p.foot", {}, el("span.pill"), toggle),
    el("div.story", { id, hidden: true }, el("p.note"), el("ol"), el("p.id", {}, `Message ${message.id}`)));
}

function fillMessage(item, message) {
  const [head, , body, whole, foot, story] = item.children;
  const own = got(message);
  // Its own domain may stand behind it.
  const is = [message.to, message.to.split("@")[0]].some((name) => name.toLowerCase() === own.toLowerCase());
  const to = is ? called(whom(own)) : `${whom(message.to)} (${called(own)})`;
  put(head.firstElementChild, `${called(message.from || "?")} → ${to}`);
  put(body, said(message));
  body.classList.toggle("hidden-text", Boolean(message.hidden));
  whole.hidden = !message.more;
  put(whole, `Show ${count(message.more, "more character", "more characters")}`);
  pill(foot.firstElementChild, message);
  const open = stories.has(message.seq);
  foot.lastElementChild.setAttribute("aria-expanded", open);
  put(foot.lastElementChild, open ? "Hide story" : "Story");
  story.hidden = !open;
  // A name is as its bearer writes it.
  const named = message.steps.some(({ to }) => to && message.note.startsWith(to));
  const note = named ? `${message.note}.` : sentence(message.note);
  // Ages in it are of the moment in which it was told.
  put(story.children[0], note && `${clock(message.told)} ${note}`);
  keyed(story.children[1], message.steps, (one) => [one.state, one.to, one.at, one.path].join(), (one) => stepItem(message, one));
}

export function open(key, { peer: name, text }) {
  peer = name;
  if (text !== search.text) {
    search = { text, found: new Set(), before: null };
    if (document.activeElement !== byId("search-text")) byId("search-text").value = text;
    if (text) look(null).catch((error) => announce(error.message));
  }
  if (name) write.about(name);
  draw();
  for (const one of name ? names(name) : []) ask(`with=${encodeURIComponent(one)}`).catch(() => {});
  if (key === opened) return;
  opened = key;
  stories.clear();
  if (!key) return;
  partner = null;
  write.about("", null);
  const mine = () => [...all.values()].filter((message) => keyOf(message) === key);
  // Of one message the story is what somebody wants to see.
  if (mine().length === 1) stories.add(mine()[0].seq);
  drawConversation();
  ask(`thread=${encodeURIComponent(key)}`).catch(() => {});
}

// The peer with which a person talks in the conversation that is open, as far as it was offered.
let partner = null;

// Whoever reads a conversation writes to the one who wrote last of those whom it began with, and answers what
// was to the page. It stays so: anybody can put a message into a conversation.
function offer(list) {
  const first = list.find(({ id }) => id === opened);
  if (!first) return;
  const began = (name) => name === first.from || name === got(first) || first.steps.some(({ to }) => to === name);
  const last = list.findLast(({ from }) => from && from !== PAGE && began(from));
  const own = first.from === PAGE && got(first) !== "*" && { from: got(first), seq: 0 };
  const offered = last || own;
  if (!offered || partner?.seq === offered.seq || (partner && partner.from !== offered.from)) return;
  partner = offered;
  write.about(offered.from, offered.to === PAGE ? { thread: opened, reply_to: offered.id } : null);
}

function drawConversation() {
  const list = [...all.values()].filter((message) => keyOf(message) === opened).sort((a, b) => a.seq - b.seq);
  offer(list);
  put(byId("conversation-title"), list.length ? between(list) : "This conversation is not known");
  keyed(byId("messages"), list, (message) => message.seq, messageItem, fillMessage);
  refresh(list);
}

// Whether a peer has to do with a message.
const has = (message) => [message.from, got(message), ...message.steps.map(({ to }) => to)].some((name) => names(peer).includes(name));

const draw = soon(() => {
  if (opened) return drawConversation();
  const { text } = search;
  const shown = conversations().filter(({ list }) => (!peer || list.some(has)) && (!text || list.some(isFound)));
  byId("older").hidden = (text ? search.before : before) === null || Boolean(peer);
  byId("list-back").hidden = !peer && !text;
  put(byId("list-title"), peer ? `Conversations with ${called(peer)}` : text ? `Conversations with “${text}”` : "Conversations");
  byId("search-none").hidden = !text || !search.looked || shown.length > 0;
  byId("list-empty").hidden = Boolean(text) || !loaded || shown.length > 0;
  const rows = shown.slice(0, 300);
  keyed(byId("conversations"), rows, (it) => it.key, row, fill);
  refresh(rows.map(shows));
});
