// Command languages reads a config, or the input of a tool, and writes what the SDK for Go makes of it:
// `sdk/rust/tests/languages.rs`.
package main

import (
	"fmt"
	"io"
	"os"

	"languages/config"
	"languages/schema"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
	}
	if len(os.Args) > 1 && os.Args[1] == "input" {
		fmt.Print(input(text))
		return
	}
	var fields struct {
		Focus    string `json:"focus"`
		Parallel int    `json:"parallel" max:"16"`
		Deep     bool   `json:"deep"`
	}
	bounds, err := config.Read(string(text), &fields)
	if err != nil {
		fmt.Print(err)
		return
	}
	deep := 0
	if fields.Deep {
		deep = 1
	}
	fmt.Printf("%d %v %d [%s] %d %d", bounds.MaxTurns, bounds.MaxBudgetUSD, bounds.DeadlineSeconds, fields.Focus, fields.Parallel, deep)
}

func input(text []byte) string {
	var in struct {
		Times int64          `json:"times"`
		Ratio float64        `json:"ratio"`
		Each  map[string]int `json:"each"`
	}
	if err := schema.Read(text, &in); err != nil {
		return err.Error()
	}
	return fmt.Sprint(in.Times, in.Ratio, in.Each["n"])
}
