// Small helpers. Whatever others wrote becomes a text node, never markup.

export const byId = (id) => document.getElementById(id);

// An element: el("p.note", {hidden: true}, "text", child). Members that a tag's object has are set,
// the others become attributes; null children are left out.
export function el(what, members = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const made = document.createElement(tag);
  made.className = classes.join(" ");
  for (const [name, value] of Object.entries(members)) {
    if (name in made) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// Makes a list's children those of `items`, each built once for its key: what has the focus keeps it,
// and nothing is said twice by a screen reader.
export function keyed(list, items, key, make, update) {
  const known = new Map([...list.children].map((child) => [child.dataset.key, child]));
  let at = list.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let child = known.get(name);
    known.delete(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    update?.(child, item);
    if (child === at) at = at.nextElementSibling;
    else list.insertBefore(child, at);
  }
  known.forEach((child) => child.remove());
}

// Sets a text only where it differs.
export function put(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const clockFormat = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const dayFormat = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

export function clock(ms) {
  const at = new Date(ms);
  const today = at.toDateString() === new Date().toDateString();
  return (today ? clockFormat : dayFormat).format(at);
}

export function moment(ms) {
  const at = new Date(ms);
  return el("time", { dateTime: at.toISOString(), title: at.toLocaleString() }, clock(ms));
}

export function span(seconds) {
  for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${Math.floor(seconds)} s`;
}

export function took(ms) {
  if (ms < 1000) return `${ms} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : span(ms / 1000);
}

export function count(n, one, many) {
  return `${n.toLocaleString()} ${n === 1 ? one : many}`;
}

export function sentence(text) {
  return text ? `${text[0].toUpperCase()}${text.slice(1)}${/[.!?]$/.test(text) ? "" : "."}` : "";
}

// Whom a message goes to, as people say it.
export const whom = (name) => (name === "*" ? "everybody" : name || "?");

// What shows that it is this page that asks. It came with the link; other ports of this host, to which
// a browser sends our cookie, cannot read it.
const given = document.querySelector("meta[name=key]").content;
if (given) localStorage.setItem("key", given);
const KEY = { "X-Peerbus-Key": given || localStorage.getItem("key") || "" };

async function answer(response) {
  const said = await response.json().catch(() => ({}));
  if (!response.ok) {
    const error = new Error(said.error || `the gateway answered ${response.status}`);
    error.status = response.status;
    throw error;
  }
  return said;
}

export async function get(path) {
  return answer(await fetch(path, { headers: KEY }));
}

// Reads a stream of events until it ends: `on(kind, data)` for each.
export async function follow(path, on, signal) {
  const response = await fetch(path, { headers: KEY, signal });
  if (!response.ok) await answer(response);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  // A long event comes in many parts, which are put together once.
  let parts = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    parts.push(value);
    if (!value.includes("\n")) continue;
    const events = parts.join("").split("\n\n");
    parts = [events.pop()];
    for (const event of events) {
      const fields = new Map(event.split("\n").map((line) => line.split(/: (.*)/s, 2)));
      if (!fields.has("event")) continue;
      try {
        on(fields.get("event"), JSON.parse(fields.get("data")));
      } catch (error) {
        error.unread = true;
        throw error;
      }
    }
  }
}

export async function post(path, body) {
  const headers = { "Content-Type": "application/json", ...KEY };
  return answer(await fetch(path, { method: "POST", headers, body: JSON.stringify(body) }));
}

// Milliseconds for which something that happened stands there to be read out.
const READ_OUT = 5000;

let silence;

// Says something to those who do not see the page.
export function announce(text) {
  put(byId("announce"), text);
  clearTimeout(silence);
  silence = setTimeout(() => put(byId("announce"), ""), READ_OUT);
}

// What somebody chose stays chosen in this browser.
export const choice = (name) => localStorage.getItem(`choice ${name}`) || "";
export const choose = (name, what) => localStorage.setItem(`choice ${name}`, what);

// Runs `draw` before the next frame, however often it is asked for.
export function soon(draw) {
  let due = false;
  return () => {
    if (due) return;
    due = true;
    setTimeout(() => {
      due = false;
      draw();
    }, 30);
  };
}
