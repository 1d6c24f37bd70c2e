// Runs one of peerbus's programs in a client that is none, and prints which marks it tells of each text.
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { createServer } from "node:net"
import { join } from "node:path"

const [word, program, dir] = process.argv.slice(2)
const texts = JSON.parse(readFileSync(0, "utf8"))
const MARK_OF_END = "pb-ffffffffffffffff-"

// The adapter's socket below this process, or the one above it. Resolves with the lines of the conversation, of
// which there is one a text.
function adapter(pid) {
  const sessions = join(dir, "peerbus/sessions")
  mkdirSync(sessions, { recursive: true })
  chmodSync(sessions, 0o700)
  process.env.XDG_RUNTIME_DIR = dir
  const told = new Map()
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      let rest = ""
      socket.setEncoding("utf8")
      socket.on("data", (text) => {
        const lines = (rest + text).split("\n")
        rest = lines.pop()
        for (const { id, method, params } of lines.map((line) => JSON.parse(line))) {
          if (method === "session/attach") socket.write(`{"jsonrpc":"2.0","id":${id},"result":{}}\n`)
          if (method === "attached/status" && params.session === "s") resolve(told)
          if (method === "attached/line") told.set(params.id, params.marks)
        }
      })
    })
    server.listen(join(sessions, `${pid}.1.sock`))
  })
}

const CLIENTS = {
  opencode: async () => {
    const listens = adapter(process.pid)
    const { event, dispose } = await (await import(program)).Peerbus({ client: {}, directory: dir })
    const says = (type, properties) => event({ event: { type, properties } })
    const info = { id: "u", sessionID: "s", role: "user" }
    const part = { sessionID: "s", messageID: "u" }
    await says("message.updated", { info })
    const told = await listens
    for (const [n, { tool, text }] of texts.entries()) {
      const is = tool ? { type: "tool", tool, state: { status: "completed", output: text } } : { type: "text", text }
      await says("message.part.updated", { part: { ...part, id: `${n}`, ...is } })
    }
    return [told, dispose]
  },
  copilot: async () => {
    const sdk = join(dir, "node_modules/@github/copilot-sdk")
    mkdirSync(sdk, { recursive: true })
    writeFileSync(join(sdk, "package.json"), '{"type":"module","exports":{"./extension":"./extension.js"}}')
    writeFileSync(join(sdk, "extension.js"), "export const joinSession = async () => globalThis.session\n")
    const listens = adapter(process.ppid)
    let heard
    globalThis.session = { sessionId: "s", on: (handler) => (heard = handler) }
    await import(program)
    const told = await listens
    for (const [n, { tool, server, text }] of texts.entries()) {
      const says = (type, data) => heard({ type, data })
      if (!tool) says("user.message", { messageId: `${n}`, content: text })
      const names = server ? { mcpServerName: server, mcpToolName: tool } : {}
      const toolName = server ? `${server}-${tool}` : tool
      if (tool) says("tool.execution_start", { toolCallId: `${n}`, toolName, ...names })
      if (tool) says("tool.execution_complete", { toolCallId: `${n}`, success: true, result: { content: text } })
    }
    return [told, () => {}]
  },
  "claude-code": async () => {
    const on = new Map()
    const { register } = await import(program)
    register((event, ...rest) => {
      if (!on.has(event)) on.set(event, rest.pop())
      return { catch: () => {} }
    })
    let messages
    let marks = []
    let ended = () => {}
    const forever = new Promise(() => {})
    const $ = {
      session: { id: async () => "s", messages: async () => messages },
      clock: { after: () => {} },
      command: { register: async () => {} },
      ui: { status: () => {} },
      process: {
        run: async (_, { stdin }) => {
          const { prompt } = JSON.parse(stdin)
          if (prompt?.startsWith(MARK_OF_END)) ended()
          else if (prompt) marks = prompt.split(" ")
          return { stdout: "" }
        },
        spawn: async function* () {
          yield { stream: "stdout", text: '{"method":"attached/watch","params":{"any":true}}\n' }
          watches()
          await forever
        },
      },
    }
    let watches
    const watching = new Promise((done) => (watches = done))
    await on.get("session.start")($, { isInteractive: true }, async () => {})
    await watching
    const asks = async (shown) => {
      messages = shown
      for await (const _ of on.get("turn.step")($, {}, async function* () {})) {
      }
    }
    const told = new Map()
    for (const [n, { tool, server, text, messages: all }] of texts.entries()) {
      const name = server ? `mcp__${server}__${tool}` : tool
      const calls = { role: "assistant", content: [{ type: "tool_use", id: `${n}`, name, input: {} }] }
      const result = { type: "tool_result", tool_use_id: `${n}`, content: [{ type: "text", text }] }
      const shown = tool ? [calls, { role: "user", content: [result] }] : [{ role: "user", content: text }]
      marks = []
      await asks(all ?? shown)
      const end = new Promise((done) => (ended = done))
      await asks([{ role: "user", content: `[${MARK_OF_END}${n}]` }])
      await end
      told.set(`${n}`, marks)
    }
    return [told, () => {}]
  },
}

const [told, dispose] = await CLIENTS[word]()
while (told.size < texts.length) await new Promise((done) => setImmediate(done))
dispose()
process.stdout.write(JSON.stringify(texts.map((_, n) => told.get(`${n}`))), () => process.exit())
