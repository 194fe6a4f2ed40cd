package guild

import (
	"fmt"
	"strings"
)

// SystemPrompt is the system prompt of a session that has the internal tools: its background, and the instructions for
// these tools.
func SystemPrompt(a Activation, task string) string {
	instructions := toolInstructions
	if a.Project != nil {
		instructions = commissionInstructions
	}
	return Background(a, task) + "\n\n# How you work\n\n" + instructions
}

// Background is the background of every session: the worker's identity, its project, its task, and its memories.
func Background(a Activation, task string) string {
	var sections []string
	if posture := strings.TrimSpace(a.Posture); posture != "" {
		sections = append(sections, posture)
	}
	if a.Project != nil {
		sections = append(sections, fmt.Sprintf("# Project\n\n%s; its files are under `%s/`.", a.Project.Name, a.Project.Root))
	}
	sections = append(sections, "# Task\n\n"+strings.TrimSpace(task))
	if len(a.Memories) > 0 {
		sections = append(sections, memories(a.Memories))
	}
	return strings.Join(sections, "\n\n")
}

// memories is the section of memories. Each of their lines is quoted, so that none passes for a line of the prompt.
func memories(notes []Note) string {
	var section strings.Builder
	section.WriteString(memoriesHeading)
	for _, note := range notes {
		section.WriteString("\n\n---\n\n" + heading(note) + "\n")
		for line := range strings.Lines(strings.TrimSpace(note.Content)) {
			section.WriteString("\n> " + strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"))
		}
	}
	return section.String() + "\n\n---"
}

// heading says the scope of a note and its origin. The keys compacted and left-out are the host's own.
func heading(note Note) string {
	origin := "of unknown origin"
	switch {
	case note.Key == "left-out" && note.Scope == Worker && note.Origin == "":
		return fmt.Sprintf("[said by the host, %s]", note.Modified)
	case note.Origin != "":
		origin = "from job " + note.Origin
	case note.Key == "compacted":
		origin = "condensed by the host from earlier notes"
	}
	return fmt.Sprintf("[%s note `%s`, %s, %s]", note.Scope, note.Key, origin, note.Modified)
}
