
// What stands in the turn under way, and what its last request was made with.
function turn(line) {
  let prompt
  let last
  let asked
  const calls = new Set()
  const show = (id, role, text) => {
    line({ id, parent: last, role, marks: marksIn(text, role === "tool") })
    last = id
  }
  return {
    begin: (id, text) => {
      ;[prompt, last, asked] = [id, undefined, undefined]
      show(id, "user", text)
    },
    calls: (id, ours) => {
      if (calls.size > 256) calls.clear()
      if (ours) calls.add(id)
    },
    // A mark in the output of a tool that is not peerbus's proves nothing.
    took: (id, text) => show(id, "tool", calls.delete(id) ? text : ""),
    ask: () => (asked = last),
    // An answer says which prompt it is for: one to another proves nothing of this turn.
    answer: (id, prompted) => {
      const parent = prompted === prompt ? (asked ?? prompt) : prompted
      line({ id, parent, role: "assistant", marks: [] })
    },
  }
}

const SHOWN_CHARS = 2000
const shortened = (text) => (text.length > SHOWN_CHARS ? `${text.slice(0, SHOWN_CHARS)}…` : text)

const session = await joinSession()
const dialogs = new Set()
let busy = false
const activity = () => (dialogs.size > 0 ? "waiting" : busy ? "busy" : "idle")
const bus = link({
  processes: [process.ppid],
  hello: {},
  status: () => ({ session: session.sessionId, activity: activity() }),
  wake: async (text) => {
    // In nobody's name but an agent's, and with no setting of the session.
    await session.send({ prompt: text, source: "agent-peerbus" })
    // Such a message is not on the screen by itself.
    session.log(shortened(text)).catch(() => {})
  },
})
const now = turn(bus.line)
const on = {
  "user.message": ({ messageId, content }) => now.begin(messageId, content),
  "tool.execution_start": ({ toolCallId, toolName, mcpConfigServerName, mcpServerName, mcpToolName }) => {
    const server = mcpConfigServerName ?? mcpServerName
    const named = server === undefined && toolName.startsWith(`${SERVER}-`)
    const ours = named ? TOOL.test(toolName.slice(SERVER.length + 1)) : isOurs(server, mcpToolName ?? toolName)
    now.calls(toolCallId, ours)
  },
  "tool.execution_complete": ({ toolCallId, result }) => now.took(toolCallId, result?.content),
  "model.call_start": () => now.ask(),
  "assistant.message": ({ messageId, originatingMessageId }) =>
    now.answer(messageId, originatingMessageId),
  "assistant.turn_start": () => (busy = true),
  "session.idle": () => (busy = false),
}
for (const dialog of ["permission", "user_input", "elicitation", "exit_plan_mode"]) {
  on[`${dialog}.requested`] = ({ requestId }) => dialogs.add(requestId)
  on[`${dialog}.completed`] = ({ requestId }) => dialogs.delete(requestId)
}
session.on(({ type, data, agentId }) => {
  // What its helpers do is not its conversation.
  if (agentId === undefined) on[type]?.(data)
  bus.changed()
})
