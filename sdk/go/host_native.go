//go:build !wasm

package guild

import (
	"fmt"
	"os"
)

// Natively, where a worker's tests run, functions of the host answer that there is none, and logged lines go to
// standard error.
func noHost(function string) error {
	return &HostError{Unavailable, "`" + function + "` is a function of the host, which a native test does not have: keep what " +
		"you test apart from it, or test the component with `guild test`"}
}

func hostLog(_ uint8, text string) { fmt.Fprintln(os.Stderr, text) }

func hostRead(string, uint32, uint32) (string, error) { return "", noHost("guild.Read") }

func hostGrep(string, string, uint32) ([]Passage, error) { return nil, noHost("guild.Grep") }

func hostGlob(string, uint32) ([]string, error) { return nil, noHost("guild.Glob") }

func hostStore(Scope, string, string) error { return noHost("guild.Store") }

func hostLoad(Scope, string) (string, bool, error) { return "", false, noHost("guild.Load") }

func hostList(Scope) ([]Entry, error) { return nil, noHost("guild.List") }

func hostDelete(Scope, string) (bool, error) { return false, noHost("guild.Delete") }

func hostSearch(string, uint32) ([]Hit, error) { return nil, noHost("guild.Search") }

func hostFetch(string) (string, error) { return "", noHost("guild.Fetch") }

func hostUpdateSummary(string) error { return noHost("guild.UpdateSummary") }

func hostRecordDecision(string, string, string) error { return noHost("guild.RecordDecision") }

func hostLogQuestion(string) error { return noHost("guild.LogQuestion") }

func hostWriteArtifact(string, []byte) error { return noHost("guild.WriteArtifact") }

func hostSubmitResult(string) error { return noHost("guild.SubmitResult") }

type hostSession struct{}

func hostQuery(SessionOptions) (*hostSession, error) { return nil, noHost("guild.Run") }

func (*hostSession) next() (hostEvent, error) { return hostEvent{isEnded: true}, nil }

func (*hostSession) answer(string, string, error) error { return nil }

func (*hostSession) drop() {}

func hostWait(sessions []*hostSession) (all []uint32) {
	for i := range sessions {
		all = append(all, uint32(i))
	}
	return all
}
