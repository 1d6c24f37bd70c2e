import { readdirSync, readFileSync, statSync } from "node:fs"
import { createConnection } from "node:net"
import { homedir } from "node:os"
import { join } from "node:path"

// What both ends speak: JSON-RPC, one text a line. `session/attach` has this number.
const VERSION = 3
const ATTACH = 0
// What says that a text was not shown. After any other error nobody knows.
const NOT_SHOWN = -32000
const INTERNAL = -32603
const LOOK_MS = 500
// How peerbus marks what it shows. Nothing else of a text is ever looked at.
const MARK = /\[([0-9]+\.[0-9]+) (pb-[0-9a-f]{16}-[0-9]+)|(?<!(?:^|[0-9]) )pb-[0-9a-f]{16}-[0-9]+/g
const PRIME = 67108859 // the largest below 2 ** 26: a product of two numbers below it is exact

// peerbus's tools, by the name that `peerbus install` gives its server.
const SERVER = "peerbus"
const TOOL = /^bus[._][a-z]+$/
const isOurs = (server, tool) => server === SERVER && TOOL.test(tool)

// The marks in a text. Before one that ends all of a text stands its sum: what was cut has none. In a result
// each has one, and nothing but its end names the mark of a result of ours.
const marksIn = (text, inResult) => [...new Set(marksOf(text, inResult))]

function marksOf(value, inResult) {
  if (typeof value !== "string") {
    const { end, unseen, replaced, ...rest } = Object(value)
    const [own] = String(end).matchAll(MARK)
    if (!own) return Object.values(Object(value)).flatMap((it) => marksOf(it, inResult))
    return [...(sumOf(rest, own[2]) === own[1] ? [own[2]] : []), ...marksOf(unseen, inResult)]
  }
  const found = [...value.matchAll(MARK)]
  const isText = (at, sum, mark) => sumOf(value.slice(at - parseInt(sum), at), mark) === sum
  const isWhole = ({ 1: sum, 2: mark, index }) => (mark ? isText(index, sum, mark) : !inResult)
  const whole = found.filter(isWhole).map(([all, , mark]) => mark ?? all)
  return found.length === whole.length ? whole : [...whole, ...marksOf(parsed(value), inResult)]
}

// The sum of all texts in a value, names of members included: their length, and the values of the polynomials that
// they are at a point which the mark tells. Clients write numbers anew, each in its own way.
function sumOf(value, mark = "") {
  const [texts, point] = [textsOf(value), parseInt(mark.slice(3, 16), 16) % PRIME]
  const at = (text) => [...text].reduce((sum, c) => (sum * point + c.codePointAt(0)) % PRIME, 0)
  return `${texts.join("").length}.${texts.reduce((sum, text) => (sum + at(text)) % PRIME, 0)}`
}

function textsOf(value) {
  if (typeof value === "string") return [value]
  const name = (key) => (Array.isArray(value) ? [] : [key])
  return Object.entries(Object(value)).flatMap(([key, it]) => [...name(key), ...textsOf(it)])
}

function parsed(text) {
  try {
    return JSON.parse(text)
  } catch {}
}

// Nothing of a text can have been shown.
class Refused extends Error {}

// Where the adapters of this user listen.
function directories() {
  const absolute = (path) => (path?.startsWith("/") ? path : undefined)
  const runtime = absolute(process.env.XDG_RUNTIME_DIR) ?? `/run/user/${process.getuid()}`
  const state = absolute(process.env.XDG_STATE_HOME) ?? join(homedir(), ".local/state")
  return [runtime, state].map((base) => join(base, "peerbus/sessions"))
}

function isPrivate(path) {
  const found = statSync(path)
  return found.isDirectory() && found.uid === process.getuid() && (found.mode & 0o077) === 0
}

// The sockets of adapters that one of these processes started.
function sockets(processes) {
  return directories().flatMap((dir) => {
    try {
      if (!isPrivate(dir)) return []
      const ours = (name) => processes.includes(Number(/^(\d+)\.\d+\.sock$/.exec(name)?.[1]))
      return readdirSync(dir).filter(ours).map((name) => join(dir, name))
    } catch {
      return []
    }
  })
}

// Keeps in touch with every adapter of the session, for as long as it lasts. `wake` shows a text.
function link({ processes, hello, status, wake }) {
  const open = new Map()
  const refused = new Set()
  let told
  const say = (socket, what) => socket.write(JSON.stringify({ jsonrpc: "2.0", ...what }) + "\n")
  const tell = (socket, method, params) => say(socket, { method, params })
  const answer = async (socket, { id, params: { text } }) => {
    try {
      await wake(text)
      say(socket, { id, result: {} })
    } catch (error) {
      const code = error instanceof Refused ? NOT_SHOWN : INTERNAL
      say(socket, { id, error: { code, message: String(error?.message ?? error) } })
      // Said again at the next event: it may be possible then.
      told = undefined
    }
  }
  const connect = (path) => {
    const socket = createConnection(path)
    open.set(path, socket)
    let [rest, connected, taken] = ["", false, false]
    socket.setEncoding("utf8")
    socket.on("connect", () => {
      connected = true
      const params = { version: VERSION, ...hello }
      say(socket, { id: ATTACH, method: "session/attach", params })
      tell(socket, "attached/status", status())
    })
    socket.on("data", (text) => {
      const lines = (rest + text).split("\n")
      rest = lines.pop()
      for (const line of lines) {
        const said = JSON.parse(line)
        if (said.id === ATTACH && said.result) taken = true
        if (said.id === ATTACH && said.error) socket.destroy()
        if (said.method === "wake") answer(socket, said)
      }
    })
    socket.on("error", () => {})
    socket.on("close", () => {
      open.delete(path)
      // One that does not listen yet is tried again.
      if (connected && !taken) refused.add(path)
    })
  }
  const look = () => {
    for (const path of sockets(processes)) {
      if (!open.has(path) && !refused.has(path)) connect(path)
    }
  }
  look()
  const timer = setInterval(look, LOOK_MS)
  timer.unref?.()
  const all = (method, params) => open.forEach((socket) => tell(socket, method, params))
  return {
    // A line of the conversation: what it follows, and which marks stand in it.
    line: (line) => all("attached/line", line),
    changed: () => {
      const now = JSON.stringify(status())
      if (now !== told) all("attached/status", status())
      told = now
    },
    end: () => {
      clearInterval(timer)
      open.forEach((socket) => socket.destroy())
    },
  }
}
