// Command languages reads a config, and writes what the SDK for Go makes of it: `sdk/rust/tests/languages.rs`.
package main

import (
	"fmt"
	"io"
	"os"

	"languages/config"
)

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		panic(err)
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
