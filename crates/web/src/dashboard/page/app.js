// The page: what it shows, and the stream that tells it what changes.

import { byId, clock, follow, post, put } from "./dom.js";
import * as messages from "./messages.js";
import * as people from "./people.js";
import * as rates from "./rates.js";
import * as requests from "./requests.js";
import * as waiting from "./waiting.js";
import * as write from "./write.js";

// The address of a link that was opened opens nothing any more.
if (location.pathname !== "/") history.replaceState(null, "", "/" + location.hash);

const words = { live: "Live", part: "Not all is live", wait: "Connecting", away: "Broker away", gone: "Gateway away", closed: "Closed" };

let connected = ["wait", ""];
// Lists that cannot be read now, and why.
const unread = new Map();

function state(now = connected[0], why = connected[1]) {
  connected = [now, why];
  if (now === "live" && unread.size) {
    const lists = [...unread].map(([list, reason]) => `The list of ${list} cannot be read: ${reason}.`);
    [now, why] = ["part", `${lists.join(" ")} What is shown of it is from before.`];
  }
  byId("state").dataset.state = now;
  put(byId("state-text"), words[now]);
  const banner = byId("banner");
  put(banner, why);
  banner.hidden = !why;
}

function read(list) {
  if (unread.delete(list)) state();
}

// Everything anew: at the beginning, and whenever something may have been missed.
async function begin() {
  try {
    await Promise.all([messages.load(), rates.load()]);
    state("live", "");
    rates.audit(false);
  } catch (error) {
    state("away", `The broker does not answer: ${error.message}`);
    setTimeout(begin, 2000);
  }
}

let refused;

const tells = {
  ready: begin,
  away: ({ why, stays }) => state("away", stays ? why : `No broker: ${why}. What is shown is from before; this goes on by itself.`),
  message(message) {
    messages.add(message);
    // It may be queued by now, which no step tells.
    messages.step(message);
    rates.add(message);
  },
  step(told) {
    messages.step(told);
    rates.step(told);
  },
  refused({ from, reason }) {
    const said = byId("refused");
    put(said, `${clock(Date.now())} The broker refused a message of ${from}: ${reason}`);
    said.hidden = false;
    clearTimeout(refused);
    refused = setTimeout(() => (said.hidden = true), 60000);
  },
  unread({ list, why }) {
    unread.set(list, why);
    state();
  },
  peers(told) {
    read("peers");
    waiting.showPeers(people.peers(told), told.more);
    write.names(told.peers);
    messages.stand(told.peers);
    requests.draw();
  },
  requests(told) {
    read("requests");
    waiting.showRequests(requests.show(told));
  },
  sessions({ sessions }) {
    read("sessions");
    people.sessions(sessions);
    waiting.show(sessions);
  },
};

async function connect() {
  let why = "The gateway (peerbus web) does not answer. This goes on when it is there.";
  let [now, pause] = ["gone", 1000];
  unread.clear();
  try {
    await follow("/dashboard/live", (kind, data) => tells[kind]?.(data));
  } catch (error) {
    // A sentence of the gateway's: this browser is not let in, or has too many pages.
    if (error.status) [why, now, pause] = [`${error.message}.`, "closed", 10000];
    else if (error.unread) [why, now, pause] = [`This page cannot read what the gateway says (${error.message}). What is shown is from before: load the page anew.`, "part", 10000];
  }
  state(now, why);
  setTimeout(connect, pause);
}

const views = ["list", "conversation", "watch"];

// Another site may link to anything.
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// What the address names: `#/c/KEY` is a conversation, `#/s/KEY` a session, `#/p/NAME` the conversations
// of a peer, `#/q/TEXT` those that a search found, nothing all of them.
function route(first) {
  const [, kind = "", ...rest] = location.hash.split("/");
  const key = decoded(rest.join("/"));
  const shown = { c: "conversation", s: "watch" }[kind] || "list";
  for (const view of views) byId(view).hidden = view !== shown;
  document.body.dataset.view = shown;
  messages.open(shown === "conversation" ? key : null, { peer: kind === "p" ? key : null, text: kind === "q" ? key : "" });
  people.watch(shown === "watch" ? key : null);
  // Whoever searches goes on to write there.
  if (first || document.activeElement === byId("search-text")) return;
  byId(`${shown}-title`).focus({ preventScroll: true });
  scrollTo(0, 0);
}

// Links to a part of the page leave what is looked at as it is.
for (const link of document.querySelectorAll("[data-to]")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const target = byId(link.dataset.to);
    target.focus({ preventScroll: true });
    target.scrollIntoView({ block: "start" });
  });
}

addEventListener("hashchange", () => route(false));
const search = byId("search-text");
const find = () => {
  const text = search.value.trim();
  location.hash = text ? `#/q/${encodeURIComponent(text)}` : "#/";
};
byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  find();
});
// Emptied, too.
search.addEventListener("search", find);
byId("link").addEventListener("click", async () => {
  const shown = byId("link-shown");
  try {
    const { path } = await post("/dashboard/link", {});
    put(shown, `Opens this page once, in another browser: ${location.origin}${path}`);
  } catch (error) {
    put(shown, error.message);
  }
  shown.hidden = false;
});

route(true);
connect();
