"""An MCP server that writes the methods and tools that it is asked into a file, and misbehaves on request.

    server.py FILE [CAPABILITY …]
"""

import json
import sys


def say(message):
    print(json.dumps({"jsonrpc": "2.0"} | message), flush=True)


TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("echo", "hang", "die", "change")]

print("this is no message")
for line in sys.stdin:
    asked = json.loads(line)
    method, params = asked.get("method"), asked.get("params") or {}
    with open(sys.argv[1], "a", encoding="utf-8") as log:
        log.write(f"{params.get('name') if method == 'tools/call' else method}\n")
    if "id" not in asked or method is None:
        continue
    if "channel" in asked or "channel" in params:
        sys.exit("a channel came through")
    if method == "initialize":
        about = {"name": "notes", "version": "1"}
        can = {"tools": {"listChanged": True}} | {word: {} for word in sys.argv[2:]}
        result = {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": about}
    elif method == "tools/list":
        result = {"tools": TOOLS}
    else:
        tool = params["name"]
        if tool == "hang":
            continue
        if tool == "die":
            sys.exit()
        if tool == "change":
            say({"method": "notifications/message", "params": {"level": "info", "data": "changing"}})
            say({"method": "notifications/tools/list_changed"})
        text = (params.get("arguments") or {}).get("text", tool)
        result = {"content": [{"type": "text", "text": text}]}
    say({"id": asked["id"], "result": result})
