// A toolbox that counts words.
package main

import (
	"strings"

	"guild/toolbox"
)

// Input is that of count.
type Input struct {
	Text string  `json:"text" doc:"The text to count in" max:"100000"`
	Word *string `json:"word,omitempty" doc:"Count this word alone"`
}

// Count is the result of count.
type Count struct {
	Words int `json:"words" doc:"How many there are"`
}

func init() {
	toolbox.AddReadOnly("count", "Counts the words of a text, or how often it has one word.", count)
}

func count(in Input) (count Count, err error) {
	if in.Word != nil && *in.Word == "" {
		return count, toolbox.InvalidInput("`word` is empty: leave it out to count all words")
	}
	for _, word := range strings.Fields(in.Text) {
		if in.Word == nil || *in.Word == word {
			count.Words++
		}
	}
	return count, nil
}

func main() {}
