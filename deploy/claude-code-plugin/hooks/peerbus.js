// Joins a session of Claude Code with its peerbus adapter. `peerbus install claude-code` wrote this file,
// and `peerbus uninstall claude-code` takes it away. It runs inside Claude Code and decides nothing: it tells
// the adapter what the session does, and does what the link, `peerbus hook link`, says. Written for
// Claude Code 2.1.287, the first with modules: it names no event that version lacks.
const VERSION = '1' // of what is said here and there
// How peerbus marks what it shows; nothing else of a text is looked at. Before a mark that ends all of a text stands its sum.
const MARK = /\[([0-9]+\.[0-9]+) (pb-[0-9a-f]{16}-[0-9]+)|(?<!(?:^|[0-9]) )pb-[0-9a-f]{16}-[0-9]+/g
const PRIME = 67108859 // the largest below 2 ** 26: a product of two numbers below it is exact
const OURS = /^mcp__(plugin_peerbus_)?peerbus__bus_[a-z]+$/ // how Claude Code names peerbus's tools
const LAST = 30 // so many messages of a request can hold what is new in it
const PAUSE_MS = 500
const PAUSE_MAX_MS = 60_000
const TELLS_MS = 5_000
const SENDS_MS = 10_000
const PROVEN_MAX = 1_000 // more of them are forgotten, and told again

let linked = false
let socket // the adapter's, as far as Claude Code lets a module post there
let watches = false // something that was shown has no proof yet
let begins = false // the turn's first request may have what the link has not told of yet
let turn
let asks = false // a request is with the model
let ends = false // the turn is to end
let ended // the turn that is being ended
let joined = false // a text stands in the conversation, and in no request yet
let told = Promise.resolve()
let rows = [] // of the pane, as the adapter wrote them
const [proven, calls, given] = [new Set(), new Set(), new Set()] // marks whose answer was told, calls of our tools, and marks in what they gave

const marksIn = marks => [...new Set(marks)].filter(mark => !proven.has(mark))

// Of a message of a request: what the user's side says, and what our tools gave. The model's own words prove nothing.
const marksOfMessage = ({ role, content }) => [content].flat().flatMap(it => {
  if (it?.type === 'tool_use' && OURS.test(it.name)) calls.add(it.id)
  if (it?.type === 'tool_result') return calls.has(it.tool_use_id) ? marksOf(it.content, true) : []
  return role === 'user' ? marksOf(it?.text ?? (typeof it === 'string' && it)) : []
})

// Of what was cut out of a text its mark tells nothing. In a result of ours its end tells it, and nothing elsewhere does.
function marksOf(value, inResult) {
  if (typeof value === 'string') {
    const found = [...value.matchAll(MARK)]
    const isWhole = ({ 1: sum, 2: mark, index: at }) => (mark ? sumOf(value.slice(at - parseInt(sum), at), mark) === sum : !inResult)
    if (inResult) for (const [all, , mark] of found) given.add(mark ?? all)
    const marks = found.filter(isWhole).map(([all, , mark]) => mark ?? all).filter(mark => inResult || !given.has(mark))
    try {
      if (found.length > marks.length) return [...marks, ...marksOf(JSON.parse(value), inResult)]
    } catch {}
    return marks
  }
  const { end, unseen, replaced, ...rest } = Object(value)
  const [own] = String(end).matchAll(MARK)
  if (!own) return Object.values(Object(value)).flatMap(it => marksOf(it, inResult))
  return [...(sumOf(rest, own[2]) === own[1] ? [own[2]] : []), ...marksOf(unseen, true)]
}

// Of all texts in a value: their length, and the polynomials that they are at a point of the mark's. Clients write numbers anew.
function sumOf(value, mark = '') {
  const [texts, point] = [textsOf(value), parseInt(mark.slice(3, 16), 16) % PRIME]
  const at = text => [...text].reduce((sum, c) => (sum * point + c.codePointAt(0)) % PRIME, 0)
  return `${texts.join('').length}.${texts.reduce((sum, text) => (sum + at(text)) % PRIME, 0)}`
}
const textsOf = value => typeof value === 'string' ? [value] : Object.entries(Object(value)).flatMap(([key, it]) => [...(Array.isArray(value) ? [] : [key]), ...textsOf(it)])

// The id is another one after /clear and /resume.
const occasion = async ($, event, more) => ({ hook_event_name: event, session_id: await $.session.id(), ...more })

// Asks the adapter, and gives what it answers; undefined: nothing, or there is none.
async function ask($, event, more, timeoutMs = TELLS_MS) {
  const stdin = JSON.stringify(await occasion($, event, more))
  const { stdout } = await $.process.run(['peerbus', 'hook'], { stdin, timeoutMs })
  return stdout.trim() ? JSON.parse(stdout) : undefined
}

// Tells the adapter something: at its socket, or by a process where Claude Code does not let it post there.
async function tells($, event, more) {
  const there = socket
  if (!there) return void await ask($, event, more)
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'hook', params: { wait: false, on: await occasion($, event, more) } }) + '\n'
  // An adapter that is stopped takes it, and answers nothing.
  const late = new Promise((_, fail) => $.clock.after(TELLS_MS, () => fail(new Error('late'))))
  try {
    await Promise.race([$.http.fetch('http://peerbus/', { method: 'POST', body, socketPath: there }), late])
  } catch {
    socket = undefined
    await ask($, event, more)
  }
}

// The same, after what was told before.
function tell($, event, more) {
  if (linked) told = told.then(() => tells($, event, more)).catch(() => {})
}

// What is added to a list of whom one can write to; empty: nobody.
async function peers($) {
  const rows = (linked && (await ask($, 'ModList', {}).catch(() => {}))?.rows) || []
  return rows.length ? ['\n\nOn the message bus (SendMessage reaches them, too; of one name, the session above is meant):', ...rows].join('\n  ') : ''
}

// Ends the turn, if it is to end, while the model is asked. In a tool that is left to the hook which runs after it:
// Claude Code would go on with a shell command in the background, and begin a turn when that is done.
async function end($) {
  if (!ends || !asks || !turn) return
  ends = false
  ended = turn
  await $.turn.abort({ turnId: turn })
  $.ui.log('a program of your user\'s interrupted this turn (peerbus session interrupt)')
}

// Shows the model a text, which the adapter gives where the session has no socket for messages. Never where the user
// wants none at that socket, or would be asked about each.
async function shows($, { text }) {
  const { crossSessionInbound: inbound = 'accept' } = await $.settings.read()
  if (inbound !== 'accept') throw new Error(inbound)
  // While the model is asked a text would stand before an answer that knows nothing of it.
  const joins = turn && !asks
  joined = joined || Boolean(joins)
  const shown = joins ? await $.session.append({ message: { type: 'user', content: [{ type: 'text', text }] } }) : await $.prompt.submit({ text })
  if (shown.drop !== undefined || shown.deny !== undefined) throw new Error('dropped')
  // It is in the next request of this conversation, even after a restart.
  if (joins) tell($, 'ModStep', { prompt: marksIn(marksOf(text)).join(' ') })
}

async function heard($, { method, params }) {
  if (method === 'attached/here') socket = params.socket
  if (method === 'attached/watch') watches = params.any
  if (method === 'attached/text') void shows($, params).catch(() => tell($, 'ModDrop', { prompt: marksIn(marksOf(params.text)).join(' ') }))
  if (method === 'attached/shows') $.ui.status(params.line ?? undefined)
  if (method === 'attached/interrupt') ends = params.turn
  await end($)
}

// Keeps a link to the adapter, and begins it anew when it ends.
async function link($) {
  for (let pause = PAUSE_MS; ; pause = Math.min(2 * pause, PAUSE_MAX_MS)) {
    try {
      let rest = ''
      for await (const { stream, text } of $.process.spawn({ argv: ['peerbus', 'hook', 'link', VERSION] })) {
        if (stream !== 'stdout') continue
        const lines = (rest + text).split('\n')
        rest = lines.pop()
        for (const line of lines) {
          linked = true
          pause = PAUSE_MS
          await heard($, JSON.parse(line)).catch(() => {})
        }
      }
    } catch {}
    if (linked) $.ui.status(undefined)
    linked = watches = socket = undefined
    await new Promise(done => $.clock.after(pause, done))
  }
}

// A request to the model: which marks of ours are in it, and that it was answered.
async function* step($, e, next) {
  const looks = linked && (watches || begins)
  begins = false
  if (!looks) return yield* next(e)
  for (const known of [proven, calls, given]) if (known.size > PROVEN_MAX) known.clear()
  const all = await $.session.messages({ as: 'api', last: LAST }).catch(() => $.session.messages({ as: 'api' })).catch(() => [])
  const marks = marksIn(all.slice(-LAST).flatMap(marksOfMessage))
  const prompt = marks.join(' ')
  if (prompt) tell($, 'ModStep', { prompt })
  const answer = yield* next(e)
  // What fails or is ended has no reason of the model's. One that refuses has not answered.
  if (prompt && typeof answer?.stopReason === 'string' && answer.stopReason !== 'refusal') {
    // Without a wait for what was told before: nobody minds the order, and a sender waits for this.
    void tells($, 'ModStep', { prompt, answered: true }).then(() => marks.forEach(mark => proven.add(mark))).catch(() => {})
  }
  return answer
}

// What waits here, for the person alone: in a pane where there is room for one, else below the command.
async function bus($) {
  const said = linked ? await ask($, 'ModBus', {}, SENDS_MS).catch(() => {}) : undefined
  rows = said?.rows ?? ['this session has no link to its adapter: `peerbus doctor` says why']
  const { isPlaced } = await $.ui.open({ id: 'bus', title: 'bus', focus: true, closeOnEscape: true, rows: rows.length }).catch(() => ({}))
  $.ui.invalidate('ui.render')
  return { text: isPlaced ? rows[0] : rows.join('\n'), isTextDisplayOnly: true }
}

export const register = on => {
  on('session.start', async ($, e, next) => {
    const started = await next(e)
    if (!e.isInteractive) return started // any other session is its driver's
    void link($)
    void $.command.register({ name: 'bus', description: 'Mail, requests and peers on the message bus', immediate: true }).catch(() => {})
    return started
  })
  on('command.run', { command: 'bus' }, $ => bus($)).catch(($, e, next) => next(e))
  on('ui.render', { component: 'Pane', requestId: 'bus' }, ($, e) => {
    const { Box, Text } = $.ui.resolve(e)
    return h(Box, { flexDirection: 'column' }, ...rows.map((text, n) => h(Text, { bold: n === 0 }, text)))
  })
  on('turn.start', ($, e, next) => {
    if (!e.agentId) {
      turn = e.turnId
      asks = ends = false
      begins = true
      tell($, 'ModTurn', { busy: true })
    }
    return next(e)
  })
  on('turn.complete', ($, e, next) => {
    if (!e.agentId) {
      turn = undefined
      asks = ends = false
      tell($, 'ModTurn', { busy: false })
      // It came when no request of the turn's was left to show it.
      if (joined) void $.prompt.submit({ text: 'Mail from the bus stands above.' }).catch(() => {})
      joined = false
    }
    return next(e)
  })
  on('turn.step', async function* ($, e, next) {
    if (e.agentId) return yield* next(e)
    asks = true
    joined = false
    try {
      await end($).catch(() => {})
      return yield* step($, e, next)
    } finally {
      asks = false
    }
  })
  // A tool may run before the request that called it is over. Of a turn that is being ended it must not begin.
  on('classic.PreToolUse', ($, e, next) => {
    asks = false
    return turn && ended === turn ? { deny: 'a program of your user\'s interrupted this turn' } : next(e)
  }).catch(($, e, next) => next(e))
  // The model's own tool reaches the bus. A name that Claude Code knows, too, is Claude Code's.
  on('tool.call', { tool: 'SendMessage' }, async ($, e, next) => {
    if (!linked || typeof e.to !== 'string' || typeof e.message !== 'string') return next(e)
    const here = /^#|@/.test(e.to) ? undefined : await next(e)
    if (here && here.result?.success !== false) return here
    const said = await ask($, 'ModSend', { to: e.to, message: e.message }, SENDS_MS).catch(() => {})
    return said ? { result: { success: said.success, message: said.message } } : (here ?? next(e))
  }).catch(($, e, next) => next(e))
  on('tool.call', { tool: 'ListAgents' }, async ($, e, next) => {
    const found = await next(e)
    const more = typeof found.result?.listing === 'string' && (await peers($))
    return more ? { result: { ...found.result, listing: found.result.listing + more } } : found
  }).catch(($, e, next) => next(e))
  on('command.run', { command: 'list-agents' }, async ($, e, next) => {
    const [found, more] = [await next(e), await peers($)]
    return more ? { ...found, text: (found.text ?? '') + more } : found
  }).catch(($, e, next) => next(e))
}
