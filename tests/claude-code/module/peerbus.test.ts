import { expect, mock, test } from 'claude-code/testing'

const LINK = 'peerbus hook link 1'

test('a session without a screen is left alone', async ($, on) => {
  const spawned: string[] = []
  on('session.start', ($, e) => ({ cwd: e.cwd }))
  on('process.spawn', async function* ($, e) { spawned.push(e.argv.join(' ')); return { value: { code: 0, signal: null } } })
  await $.session.start({ surface: null, isInteractive: false, cwd: '/work' })
  expect(spawned).toEqual([])
})

test('and offers no command', async ($, on) => {
  const offered: string[] = []
  on('session.start', ($, e) => ({ cwd: e.cwd }))
  on('command.register', ($, e) => { offered.push(e.name); return { value: undefined } })
  on('process.spawn', async function* ($, e) { return { value: { code: 0, signal: null } } })
  await $.session.start({ surface: null, isInteractive: false, cwd: '/work' })
  expect(offered).toEqual([])
  await $.session.start({ surface: 'terminal', isInteractive: true, cwd: '/work' })
  expect(offered).toEqual(['bus'])
})

test('one with a screen is linked, and again after the link broke, later and later', async ($, on) => {
  const spawned: string[] = []
  const clock = mock.clock(on)
  on('session.start', ($, e) => ({ cwd: e.cwd }))
  on('process.spawn', async function* ($, e) { spawned.push(e.argv.join(' ')); return { value: { code: 0, signal: null } } })
  await $.session.start({ surface: 'terminal', isInteractive: true, cwd: '/work' })
  await clock.settle()
  await clock.advance(500)
  expect(spawned).toEqual([LINK, LINK])
  await clock.advance(500)
  expect(spawned).toEqual([LINK, LINK])
  await clock.advance(500)
  expect(spawned).toEqual([LINK, LINK, LINK])
})
