
// What this program was started with. `undefined`: that cannot be told.
function commandLine() {
  try {
    return readFileSync("/proc/self/cmdline", "utf8").split("\0")
  } catch {
    return undefined
  }
}

// The conversations of one session, as its events tell of them.
function conversations(line) {
  const all = new Map()
  const of = (id) => {
    if (!all.has(id)) all.set(id, { shown: [], done: new Set(), follows: new Map() })
    return all.get(id)
  }
  // Texts for the model, in their order, each after the one before.
  const show = (session, id, message, user, text) => {
    const known = of(session)
    if (known.done.has(id)) return
    known.done.add(id)
    const parent = known.shown.at(-1)?.id
    known.shown.push({ id, message, user })
    if (known.shown.length > 256) known.done.delete(known.shown.shift().id)
    line({ id, parent, role: user ? "user" : "tool", marks: marksIn(text, !user) })
  }
  // An answer was asked for with all that stood there then. The last prompt that it was asked with is
  // its parent: one that came while it was being asked is not in it.
  const ask = (session, { id, parentID }) => {
    const known = of(session)
    if (known.follows.has(id)) return
    const prompt = known.shown.findLastIndex((one) => one.user && one.message === parentID)
    if (prompt < 0) return known.follows.set(id, undefined)
    const later = known.shown.findIndex((one, at) => at > prompt && one.user)
    known.follows.set(id, known.shown.at(later < 0 ? -1 : later - 1).id)
    if (known.follows.size > 256) known.follows.delete(known.follows.keys().next().value)
  }
  const answer = (session, { id }) => {
    const known = of(session)
    if (known.done.has(id)) return
    known.done.add(id)
    line({ id, parent: known.follows.get(id), role: "assistant", marks: [] })
  }
  return { show, ask, answer, forget: (session) => all.delete(session) }
}

export const Peerbus = async ({ client, directory }) => {
  const command = commandLine()
  const inTerminal = /tui\/worker/.test(process.argv[1] ?? "")
  const resumed = command?.some((word) => /^(-[a-z]*[cs]|--continue|--session|--fork)/.test(word))
  // A session in a terminal has no conversation before the first prompt, unless it resumes one.
  const mayBegin = inTerminal && command && !resumed
  const children = new Set()
  const prompts = new Set()
  const busy = new Set()
  const dialogs = new Set()
  // The conversation that was prompted last, and in which mode and with which model.
  let current
  let kind = {}
  const status = () => {
    const waits = dialogs.size > 0 ? "waiting" : "idle"
    const apart = "OpenCode has not said which conversation is open: it does with the first prompt"
    return {
      session: current,
      activity: waits === "idle" && busy.has(current) ? "busy" : waits,
      apart: current || mayBegin ? undefined : apart,
    }
  }
  const begin = async () => {
    const made = await client.session.create({ body: {} })
    if (!made.data?.id) throw new Refused("OpenCode began no conversation")
    current = made.data.id
    kind = {}
    const properties = { sessionID: current }
    await client.tui.publish({ body: { type: "tui.session.select", properties } })
  }
  const wake = async (text) => {
    if (!current && !mayBegin) throw new Refused(status().apart)
    if (!current) await begin()
    const body = { ...kind, parts: [{ type: "text", text }] }
    const answer = await client.session.promptAsync({ path: { id: current }, body })
    const code = answer.response?.status
    if (code !== 204) throw new Refused(`OpenCode answered ${code ?? "nothing"}`)
  }
  const bus = link({ processes: [process.pid], hello: { directory }, status, wake })
  const known = conversations(bus.line)

  const prompted = ({ id, sessionID, agent, model }) => {
    prompts.add(id)
    if (prompts.size > 256) prompts.delete(prompts.values().next().value)
    if (children.has(sessionID)) return
    current = sessionID
    // What a prompt does not say is the default's, which may be allowed more.
    kind = { agent, model: model && { providerID: model.providerID, modelID: model.modelID } }
    if (model?.variant) kind.variant = model.variant
  }
  const on = {
    "session.created": ({ info }) => info.parentID && children.add(info.id),
    "session.deleted": ({ info }) => {
      known.forget(info.id)
      children.delete(info.id)
      if (current === info.id) current = undefined
    },
    "session.status": ({ sessionID, status: { type } }) =>
      type === "idle" ? busy.delete(sessionID) : busy.add(sessionID),
    "session.idle": ({ sessionID }) => busy.delete(sessionID),
    "permission.asked": ({ id }) => dialogs.add(id),
    "permission.replied": ({ requestID }) => dialogs.delete(requestID),
    "question.asked": ({ id }) => dialogs.add(id),
    "question.replied": ({ requestID }) => dialogs.delete(requestID),
    "question.rejected": ({ requestID }) => dialogs.delete(requestID),
    "message.updated": ({ info }) => {
      if (info.role === "user" && !prompts.has(info.id)) prompted(info)
      if (info.role !== "assistant" || info.summary) return
      known.ask(info.sessionID, info)
      if (info.time?.completed && info.finish && !info.error) known.answer(info.sessionID, info)
    },
    "message.part.updated": ({ part }) => {
      const { id, messageID, sessionID, type, text, state, tool } = part
      if (type === "text" && prompts.has(messageID)) known.show(sessionID, id, messageID, true, text)
      if (type !== "tool" || !["completed", "error"].includes(state?.status)) return
      // The server's name and the tool's, as one.
      const [, server, name] = /^(.*?)_(bus[._].*)$/.exec(tool) ?? []
      // What a helper was shown its agent was not.
      const counts = isOurs(server, name) && !children.has(sessionID)
      known.show(sessionID, id, messageID, false, counts ? state.output : "")
    },
  }
  return {
    event: async ({ event }) => {
      on[event.type]?.(event.properties)
      bus.changed()
    },
    dispose: async () => bus.end(),
  }
}
