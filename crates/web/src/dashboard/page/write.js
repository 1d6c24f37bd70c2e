// What a person writes to an agent or a group.

import { byId, el, keyed, post, put } from "./dom.js";

// The message that the next one answers, with its conversation, and by whom it is.
let answers = null;

// Whom somebody may mean.
export function names(peers) {
  const groups = new Set(peers.flatMap((peer) => peer.groups || []));
  const all = [...peers.filter(({ online }) => online).map(({ name }) => name), ...groups];
  keyed(byId("names"), all, (name) => name, (name) => el("option", { value: name }));
}

// What is open is what somebody writes about.
export function about(to, answered) {
  if (byId("write-text").value) return;
  answers = answered && { ...answered, to };
  byId("write-to").value = to;
  put(byId("write-said"), "");
}

byId("write-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const [to, text, said, button] = [byId("write-to"), byId("write-text"), byId("write-said"), event.submitter];
  if (button.hasAttribute("aria-disabled")) return;
  button.setAttribute("aria-disabled", "true");
  text.readOnly = true;
  said.className = "";
  try {
    const name = to.value.trim();
    const { thread, reply_to } = answers?.to === name ? answers : {};
    const { online } = await post("/dashboard/send", { to: name, text: text.value, thread, reply_to });
    put(said, `Accepted${online ? "" : `: ${name} is away and gets it later`}. An answer comes to the conversation.`);
    text.value = "";
  } catch (error) {
    said.className = "problem";
    put(said, error.message);
  }
  text.readOnly = false;
  button.removeAttribute("aria-disabled");
});
