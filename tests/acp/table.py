"""The table in docs/ANY_AGENT.md: one row and some notes for each agent, written after a run of it."""

import datetime
import textwrap
from pathlib import Path

from agents import AGENTS

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "ANY_AGENT.md"
BEGIN = "<!-- Written by tests/acp/run.py: begin -->"
END = "<!-- Written by tests/acp/run.py: end -->"
HEADER = (
    "| agent | version | run on | is woken | `seen` is proven by | asks, and is answered from elsewhere "
    "| a turn is interrupted | after a kill | does unasked |"
)
UNASKED = {"shell": "runs shell commands", "writer": "writes files in its project"}


MARKS = "¹²³⁴⁵"


def row(word, agent, facts):
    """The agent's row, and its notes."""
    notes = agent.cannot | agent.notes
    mark = dict(zip(notes, MARKS))
    proofs = {"tool_call": "a bus tool that names it", "transcript": agent.proof}
    seen = ", ".join(proofs[proof] for proof in dict.fromkeys(facts["seen"]))
    cells = [
        word,
        facts["version"],
        datetime.date.today().isoformat(),
        "yes" + mark.get("tools", ""),
        seen,
        ("yes" if facts["approvals"] else "no") + mark.get("approvals", ""),
        ("yes" if facts["interrupt"] else "no") + mark.get("interrupt", ""),
        ("goes on" if facts["resume"] else "begins anew") + mark.get("resume", ""),
        " and ".join(UNASKED[what] for what in facts["unasked"]) or "nothing",
    ]
    told = [wrapped(f"- {word}{mark[what]} {why}") for what, why in notes.items()]
    return "| " + " | ".join(cells) + " |", told


def wrapped(note):
    """The note in lines that are as long as those of documents."""
    options = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.fill(note, 120, subsequent_indent="  ", **options)


def write(word, agent, facts):
    """Puts the agent's row into the document, and leaves those of others."""
    text = DOCUMENT.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    old, after = rest.split(END)
    rows, notes = {}, {}
    for line in old.splitlines():
        if line.startswith("- "):
            name = line[2:].split(" ")[0].rstrip(MARKS)
            notes.setdefault(name, []).append(line)
        elif line.startswith("  "):
            notes[name][-1] += "\n" + line
        elif line.startswith("| ") and line != HEADER:
            rows[line[2:].split(" ")[0]] = line
    rows[word], notes[word] = row(word, agent, facts)
    order = [name for name in AGENTS if name in rows]
    lines = [HEADER, "|---" * (HEADER.count("|") - 1) + "|", *(rows[name] for name in order)]
    told = [line for name in order for line in notes.get(name, [])]
    body = "\n".join([BEGIN, *lines, *([""] if told else []), *told, END])
    DOCUMENT.write_text(before + body + after, encoding="utf-8")
