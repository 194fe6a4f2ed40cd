// A worker that answers questions from the files that it may read.
package main

import (
	"guild"
	"guild/worker"
)

// Config has the keys of a dispatch's config.
type Config struct {
	Focus string `json:"focus" doc:"What to concentrate on"`
}

func init() {
	worker.Export([]string{"Read", "Grep", "Glob"}, plan)
}

func plan(a guild.Activation, c Config) (plan worker.Plan, err error) {
	if c.Focus != "" {
		plan.Prompt = a.Task + "\n\nConcentrate on: " + c.Focus
	}
	return plan, nil
}

func main() {}
