// Requests that have no result yet: since when, who asked, who owes it, how far it is.

import { byId, el, keyed, put, span } from "./dom.js";
import { called } from "./people.js";

let open = [];
let omits = "";

export function show({ requests, more }) {
  omits = more ? " and more" : "";
  open = requests.map((request) => ({ ...request, until: Date.now() + request.left_s * 1000 }));
  draw();
  return open;
}

function row({ thread, reply_to, id }) {
  return el("li", {}, el("a.conversation.request", { href: `#/c/${encodeURIComponent(thread || reply_to || id)}` },
    el("span.who"), el("span.when"), el("span.text"), el("span.pill")));
}

function fill(item, request) {
  const [who, when, text, state] = item.firstElementChild.children;
  put(who, `${called(request.from) || "?"} → ${called(request.owes)}`);
  put(when, span(Math.max(0, Date.now() - request.at) / 1000));
  put(text, request.hidden ? `Not shown: ${request.hidden}` : request.text);
  text.classList.toggle("hidden-text", Boolean(request.hidden));
  put(state, request.state);
  state.classList.toggle("bad", request.alarm);
}

export function draw() {
  byId("requests").hidden = !open.length;
  put(byId("requests-title"), open.length > 1 ? `Open requests · ${open.length}${omits}` : "Open requests");
  keyed(byId("requests-list"), open, (request) => request.seq, row, fill);
}

// Ages grow.
setInterval(draw, 10000);
