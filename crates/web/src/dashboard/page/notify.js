// Notifications of the browser when something is its reader's to do, while the page is not looked at.

import { byId, choice, choose, put } from "./dom.js";

const button = byId("notify");
const able = "Notification" in window;
const on = () => able && choice("notify") === "on" && Notification.permission === "granted";

function draw() {
  button.setAttribute("aria-pressed", on());
  put(button, on() ? "Stop notifying me" : "Notify me when something is mine to do");
}

button.addEventListener("click", async () => {
  const wants = !on();
  const may = able && wants ? await Notification.requestPermission() : "";
  choose("notify", wants ? "on" : "");
  put(byId("notify-said"), !wants || may === "granted" ? "" : "This browser allows no notifications of this page.");
  draw();
});

// Tells what came.
export function notify(text, about) {
  if (on() && document.hidden) new Notification(text, { body: about, tag: "peerbus", icon: "/page/icon.svg" });
}

draw();
