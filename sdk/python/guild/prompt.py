"""Writes system prompts for agent sessions: posture, task, memories, and how to use the internal tools."""

from .texts import COMMISSION_INSTRUCTIONS, MEMORIES_HEADING, TOOL_INSTRUCTIONS


def system_prompt(activation, task):
    """The system prompt of a session that has the internal tools: its background, and how to use these tools."""
    instructions = COMMISSION_INSTRUCTIONS if activation.project else TOOL_INSTRUCTIONS
    return f"{background(activation, task)}\n\n# How you work\n\n{instructions}"


def background(activation, task):
    """The background of every session: the worker's identity, its project, its task, and its memories."""
    sections = []
    if posture := activation.posture.strip():
        sections.append(posture)
    if project := activation.project:
        sections.append(f"# Project\n\n{project.name}; its files are under `{project.root}/`.")
    sections.append(f"# Task\n\n{task.strip()}")
    if activation.memories:
        sections.append(_memories(activation.memories))
    return "\n\n".join(sections)


def _memories(notes):
    """Each line of a note is quoted, so that none passes for a line of the prompt."""
    section = MEMORIES_HEADING
    for note in notes:
        lines = note.content.strip().replace("\r\n", "\n").split("\n")
        section += f"\n\n---\n\n{_heading(note)}\n" + "".join(f"\n> {line}" for line in lines)
    return section + "\n\n---"


def _heading(note):
    """The scope of a note and its origin. The keys compacted and left-out are the host's own."""
    scope = note.scope.name.lower()
    if note.key == "left-out" and scope == "worker" and note.origin is None:
        return f"[said by the host, {note.modified}]"
    if note.origin is not None:
        origin = f"from job {note.origin}"
    elif note.key == "compacted":
        origin = "condensed by the host from earlier notes"
    else:
        origin = "of unknown origin"
    return f"[{scope} note `{note.key}`, {origin}, {note.modified}]"
