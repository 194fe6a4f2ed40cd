// A worker that asks each file one question, with a session for each, side by side.
package main

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"guild"
	"guild/autonomous"
)

// Config has the keys of a dispatch's config.
type Config struct {
	Files string `json:"files" doc:"Which files, as a glob; all Markdown if not set"`
	Most  uint32 `json:"most" doc:"How many files, at most; 5 if not set" max:"20"`
}

func init() {
	autonomous.Export(run)
}

func run(a guild.Activation, c Config) (string, error) {
	files := cmp.Or(c.Files, "**/*.md")
	paths, err := guild.Glob(files, cmp.Or(c.Most, 5))
	if err != nil {
		return "", err
	}
	if len(paths) == 0 {
		return "", fmt.Errorf("no file matches %s", files)
	}
	sections := make([]string, len(paths))
	var group sync.WaitGroup
	for i, path := range paths {
		group.Add(1)
		go func() {
			defer group.Done()
			sections[i] = section(a, path)
		}()
	}
	group.Wait()
	return strings.Join(sections, "\n\n"), nil
}

// section is that of the report on one file. A session that fails is a sentence in it, not the end of the job.
func section(a guild.Activation, path string) string {
	answer, err := guild.Ask(guild.Options(a, a.Task+"\nSource: `"+path+"`", "Read", "Grep", "Glob"))
	if err != nil {
		answer = "No answer: " + err.Error()
	}
	return "# " + path + "\n\n" + answer
}

func main() {}
