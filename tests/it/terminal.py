"""terminal.py COLUMNS COMMAND…: runs a command on a terminal so many columns wide, types there what comes
on its standard input, prints what is shown, and ends as the command does."""

import fcntl
import os
import pty
import struct
import sys
import termios

process, terminal = pty.fork()
if process == 0:
    # The size is there before the command looks.
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, int(sys.argv[1]), 0, 0))
    os.execvp(sys.argv[2], sys.argv[2:])
os.write(terminal, sys.stdin.buffer.read())
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:  # the terminal's last process has ended
        break
    if not piece:
        break
    sys.stdout.buffer.write(piece.replace(b"\r\n", b"\n"))
    sys.stdout.flush()
_, status = os.waitpid(process, 0)
sys.exit(os.waitstatus_to_exitcode(status))
