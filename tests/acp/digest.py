"""Reads requests to a model: who said what, and which tools there are."""

import json


def words(content):
    """The texts of a message."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(block.get("text") or "" for block in blocks if isinstance(block, dict))


def written(value):
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def digest(kind, body):
    """The messages of the conversation as (`user`, `model` or `result`, text), those since the model
    last spoke, and the tools by the names that the model is shown."""
    turns, tools = READERS[kind](body)
    spoke = [number for number, (role, _) in enumerate(turns) if role == "model"]
    return turns, turns[max(spoke, default=-1) + 1 :], tools


def responses(body):
    turns, tools = [], {}
    items = body.get("input") or []
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = str(item.get("type", "message"))
        if kind.endswith("_output"):
            turns.append(("result", written(item.get("output"))))
        elif item.get("role") == "user":
            turns.append(("user", words(item.get("content"))))
        elif item.get("role") == "assistant" or kind.endswith("_call"):
            turns.append(("model", ""))
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            space = tool["name"]
            for one in tool.get("tools", []):
                tools[f"{space}__{one['name']}"] = {"name": one["name"], "namespace": space}
        else:
            name = tool.get("name") or tool.get("type")
            tools[name] = {"name": name, "kind": tool.get("type")}
    return turns, tools


def chat(body):
    roles = {"user": "user", "tool": "result", "assistant": "model"}
    said = [(roles.get(message.get("role")), message) for message in body.get("messages") or []]
    turns = [(role, words(message.get("content"))) for role, message in said if role]
    functions = [tool["function"] for tool in body.get("tools") or [] if "function" in tool]
    return turns, {function["name"]: {"name": function["name"]} for function in functions}


def gemini(body):
    turns = []
    for message in body.get("contents") or []:
        for part in message.get("parts") or []:
            if "functionResponse" in part:
                turns.append(("result", written(part["functionResponse"].get("response"))))
            elif message.get("role") == "model":
                turns.append(("model", ""))
            elif part.get("text"):
                turns.append(("user", part["text"]))
    groups = [group.get("functionDeclarations") or [] for group in body.get("tools") or []]
    names = [function["name"] for group in groups for function in group]
    return turns, {name: {"name": name} for name in names}


def messages(body):
    turns = []
    for message in body.get("messages") or []:
        content = message.get("content")
        if message.get("role") == "assistant":
            turns.append(("model", ""))
            continue
        for block in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            if block.get("type") == "tool_result":
                turns.append(("result", words(block.get("content"))))
            elif block.get("type") == "text":
                turns.append(("user", block.get("text") or ""))
    names = [tool.get("name") for tool in body.get("tools") or []]
    return turns, {name: {"name": name} for name in names}


READERS = {"responses": responses, "chat": chat, "gemini": gemini, "messages": messages}
