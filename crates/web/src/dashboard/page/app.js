// The page: what it shows, and the stream that tells it what changes.

import { announce, byId, get, post, put } from "./dom.js";
import * as messages from "./messages.js";
import * as people from "./people.js";
import * as rates from "./rates.js";
import * as waiting from "./waiting.js";

// The address of a link that was opened opens nothing any more.
if (location.pathname !== "/") history.replaceState(null, "", "/" + location.hash);

const words = { live: "Live", wait: "Connecting", away: "Broker away", gone: "Gateway away" };

function state(now, why = "") {
  byId("state").dataset.state = now;
  put(byId("state-text"), words[now]);
  const banner = byId("banner");
  put(banner, why);
  banner.hidden = !why;
}

// Everything anew: at the beginning, and whenever something may have been missed.
async function begin() {
  try {
    await Promise.all([messages.load(), rates.load()]);
    state("live");
    rates.audit(false);
  } catch (error) {
    state("away", `The broker does not answer: ${error.message}`);
  }
}

let stream;

function connect() {
  stream = new EventSource("/dashboard/live");
  const on = (kind, handle) => stream.addEventListener(kind, (event) => handle(JSON.parse(event.data)));
  on("ready", begin);
  on("away", ({ why }) => state("away", `No broker: ${why}. What is shown is from before; this goes on by itself.`));
  on("message", (message) => {
    messages.add(message);
    rates.add(message);
  });
  on("step", (told) => {
    messages.step(told);
    rates.step(told);
  });
  on("refused", ({ from, reason }) => announce(`The broker refused a message of ${from}: ${reason}`));
  on("peers", people.peers);
  on("sessions", ({ sessions }) => {
    people.sessions(sessions);
    waiting.show(sessions);
  });
  stream.onerror = async () => {
    stream.close();
    const why = await closed();
    state("gone", why || "The gateway (peerbus web) does not answer. This goes on when it is there.");
    setTimeout(connect, why ? 15000 : 1000);
  };
}

// Why this browser is not let in, if that is so.
async function closed() {
  try {
    await get("/dashboard/audit");
  } catch (error) {
    if (error.status === 401) return `${error.message}.`;
  }
  return "";
}

const views = ["list", "conversation", "watch"];

// What the address names: `#/c/KEY` is a conversation, `#/s/KEY` a session, another word a section.
function route(first) {
  const [, kind = "", ...rest] = location.hash.split("/");
  const key = decodeURIComponent(rest.join("/"));
  const shown = { c: "conversation", s: "watch" }[kind] || "list";
  for (const view of views) byId(view).hidden = view !== shown;
  document.body.dataset.view = shown;
  messages.open(shown === "conversation" ? key : null);
  people.watch(shown === "watch" ? key : null);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === location.hash || (shown !== "list" && link.hash === "#/")) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
  }
  const target = byId(kind === "main" ? "main" : `${shown === "list" ? kind || "list" : shown}-title`);
  if (first || !target) return;
  target.focus({ preventScroll: true });
  if (shown === "list" && !kind) scrollTo(0, 0);
  else target.scrollIntoView({ block: "start" });
}

addEventListener("hashchange", () => route(false));
byId("link").addEventListener("click", async () => {
  const shown = byId("link-shown");
  try {
    const { link } = await post("/dashboard/link", {});
    put(shown, `Opens this page once, in another browser of this machine: ${link}`);
  } catch (error) {
    put(shown, error.message);
  }
  shown.hidden = false;
});

route(true);
connect();
