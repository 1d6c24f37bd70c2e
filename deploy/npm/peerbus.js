#!/usr/bin/env node
// Becomes the program of this platform. Where Node cannot do that (before 22.15), it stays beside it.
'use strict';

const { spawn } = require('node:child_process');

function program() {
  const platform = `@peerbus/${process.platform}-${process.arch}`;
  try {
    return require.resolve(`${platform}/peerbus`);
  } catch {
    console.error(
      `peerbus: ${platform} is not installed: npm left it out, or there is none for this platform. ` +
        'Install again without `--omit=optional`, or see README for other ways'
    );
    process.exit(1);
  }
}

const path = program();
const args = process.argv.slice(2);
if (typeof process.execve === 'function') {
  // That it is new is nobody's concern here.
  process.emitWarning = () => {};
  process.execve(path, [path, ...args], process.env);
}
const child = spawn(path, args, { stdio: 'inherit' });
// A key at a terminal reaches the program by itself.
for (const signal of ['SIGINT', 'SIGQUIT']) {
  process.on(signal, () => process.stdin.isTTY || child.kill(signal));
}
for (const signal of ['SIGTERM', 'SIGHUP']) {
  process.on(signal, () => child.kill(signal));
}
child.on('error', (error) => {
  console.error(`peerbus: ${path} cannot be started: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => {
  if (!signal) process.exit(code);
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
