// How many messages, how soon they are seen, and what the audit chain is like.

import { byId, clock, count, el, get, put, sentence, soon, took } from "./dom.js";

const MINUTES = 60;
const MINUTE = 60000;
// Of each message its number: when it was accepted, and after how many milliseconds it was seen.
let all = new Map();
let whole = true;

export async function load() {
  const told = await get("/dashboard/rates");
  all = new Map(told.messages.map(([seq, at, seen]) => [seq, { at, seen }]));
  whole = told.whole;
  draw();
}

export function add({ seq, at }) {
  if (!all.has(seq)) all.set(seq, { at, seen: null });
  draw();
}

export function step({ seq, step }) {
  const message = all.get(seq);
  if (step.state !== "seen" || !message || message.seen !== null) return;
  message.seen = Math.max(0, Date.parse(step.at) - message.at);
  draw();
}

const SVG = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const WIDTH = 300;
const HEIGHT = 56;

// Bars, one a minute, the newest at the right.
function bars(values, label, scale) {
  const step = WIDTH / MINUTES;
  const top = Math.max(...values.map(scale), scale(1));
  const drawn = values.map((value, n) => {
    const height = value ? Math.max(2, (scale(value) / top) * (HEIGHT - 2)) : 0;
    return svg("rect", { x: n * step + 0.5, y: HEIGHT - height, width: step - 1, height, rx: 1 });
  });
  const base = svg("line", { x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT });
  return svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT + 1}`, role: "img", "aria-label": label, class: "chart" }, base, ...drawn);
}

const middle = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

function chart(title, says, values, scale = (n) => n) {
  return el("figure", {}, el("figcaption", {}, title), bars(values, `${title}: ${says}`, scale),
    el("p.axis", { "aria-hidden": "true" }, el("span", {}, "an hour ago"), el("span", {}, "now")), el("p.about", {}, sentence(says)));
}

const draw = soon(() => {
  const now = Date.now();
  const first = Math.floor(now / MINUTE) - MINUTES + 1;
  const minutes = Array.from({ length: MINUTES }, () => ({ count: 0, seen: [] }));
  let total = 0;
  const times = [];
  for (const [seq, { at, seen }] of all) {
    const minute = minutes[Math.floor(at / MINUTE) - first];
    if (at < now - 2 * MINUTES * MINUTE) all.delete(seq);
    if (!minute) continue;
    total += 1;
    minute.count += 1;
    if (seen !== null) {
      minute.seen.push(seen);
      times.push(seen);
    }
  }
  times.sort((a, b) => a - b);
  const most = minutes.reduce((best, minute, n) => (minute.count > minutes[best].count ? n : best), 0);
  const part = whole ? "" : "at least ";
  const counted = total
    ? `${part}${count(total, "message", "messages")} in the last hour, at most ${minutes[most].count} a minute (${clock((first + most) * MINUTE).slice(0, 5)}).`
    : "no messages in the last hour.";
  const seen = times.length
    ? `half were seen within ${took(middle(times, 0.5))}, nine of ten within ${took(middle(times, 0.9))}; ${count(times.length, "is", "are")} known to be seen.`
    : "nothing that was sent in the last hour is known to be seen.";
  const medians = minutes.map((minute) => (minute.seen.length ? middle(minute.seen.sort((a, b) => a - b), 0.5) : 0));
  byId("rates").replaceChildren(
    chart("Messages a minute", counted, minutes.map((minute) => minute.count)),
    // From milliseconds to hours: by powers of ten.
    chart("Time until seen", seen, medians, (ms) => Math.log10(ms + 1)));
});
setInterval(draw, MINUTE / 2);

export async function audit(anew) {
  const place = byId("audit");
  const again = el("button.quiet", { type: "button" }, "Check again");
  again.addEventListener("click", () => audit(true));
  if (anew) put(place.querySelector("button"), "Checking");
  try {
    const { ok, at, says, missing } = await get(`/dashboard/audit?anew=${anew}`);
    const whole = ok && !missing;
    place.replaceChildren(
      el("p", {}, el(`span.pill.${whole ? "good" : "bad"}`, {}, whole ? "whole" : "not whole"), ` checked ${clock(at)}`),
      el("p.about", {}, sentence(missing || says)), again);
  } catch (error) {
    place.replaceChildren(el("p.problem", {}, error.message), again);
  }
}
setInterval(() => audit(false), 5 * MINUTE);
