// A worker that knows the headings of the files that it may read, and a tool that lists them.
package main

import (
	"cmp"
	"fmt"

	"guild"
	"guild/toolbox"
	"guild/worker"
)

// Input is that of headings.
type Input struct {
	Files string `json:"files,omitempty" doc:"The files, as a glob; all Markdown if it is left out"`
}

// Headings is the result of headings.
type Headings struct {
	Headings []Heading `json:"headings"`
}

// Heading is one of a file.
type Heading struct {
	Path string `json:"path" doc:"The file"`
	Line uint32 `json:"line" doc:"The number of the line, from 1"`
	Text string `json:"text" doc:"The heading, with its #"`
}

func init() {
	worker.Export([]string{"Read", "Grep", "Glob"}, plan)
	toolbox.AddReadOnly("headings", "Lists the headings of Markdown files, to find where to read.", headings)
}

func headings(in Input) (Headings, error) {
	found, err := guild.Grep("^#{1,3} ", cmp.Or(in.Files, "**/*.md"), 200)
	all := Headings{make([]Heading, 0, len(found))}
	for _, at := range found {
		all.Headings = append(all.Headings, Heading(at))
	}
	return all, err
}

func plan(a guild.Activation, _ struct{}) (worker.Plan, error) {
	found, err := headings(Input{})
	if err != nil {
		return worker.Plan{}, guild.Unsupported(err.Error())
	}
	prompt := guild.SystemPrompt(a, a.Task) + "\n\n# Headings of the files\n"
	for _, at := range found.Headings {
		prompt += fmt.Sprintf("\n%s:%d: %s", at.Path, at.Line, at.Text)
	}
	return worker.Plan{SystemPrompt: prompt}, nil
}

func main() {}
