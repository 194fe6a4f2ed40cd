package guild

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"

	"guild/internal/schema"
)

// SessionOptions are those of an agent session.
type SessionOptions struct {
	// Prompt is the message that starts the session.
	Prompt string
	// SystemPrompt is the agent's identity and its way of working.
	SystemPrompt string
	// Tools are built-in tools, a subset of what was granted.
	Tools []string
	// JobTools tells whether the session may call the internal tools on the job.
	JobTools bool
	// OwnTools are tools that the worker answers itself; OwnTool makes one.
	OwnTools []Tool
	// Model is the preferred model, or empty.
	Model string
	// Bounds are those of the session, within what is left of the job's.
	Bounds Bounds
}

// Options are the member's identity, those of the wanted tools that were granted, and the job's bounds.
func Options(a Activation, prompt string, wanted ...string) SessionOptions {
	return SessionOptions{Prompt: prompt, SystemPrompt: a.Posture, Tools: Granted(a, wanted...), Bounds: a.Bounds}
}

// Granted are the granted tools among the wanted ones.
func Granted(a Activation, wanted ...string) (tools []string) {
	for _, tool := range a.GrantedTools {
		if slices.Contains(wanted, tool) {
			tools = append(tools, tool)
		}
	}
	return tools
}

// Tool is a tool of a session's own.
type Tool struct {
	Name, Description string
	schema            string
	call              func(input []byte) (any, error)
}

// OwnTool makes a tool that a session calls and the worker answers. The schema of its input is made from In, as by the
// package toolbox. The model is told an error of call.
func OwnTool[In any](name, description string, call func(In) (any, error)) Tool {
	text, _ := json.Marshal(schema.Of(reflect.TypeFor[In]()))
	return Tool{name, description, string(text), func(input []byte) (any, error) {
		var in In
		if err := schema.Read(input, &in); err != nil {
			return nil, err
		}
		return call(in)
	}}
}

// Ending is how a session ended.
type Ending uint8

const (
	// Success: the session ended by itself.
	Success Ending = iota
	// MaxTurns: it used up its turns.
	MaxTurns
	// MaxBudget: it used up its dollars.
	MaxBudget
	// Deadline: it used up its time.
	Deadline
	// Interrupted: it was interrupted.
	Interrupted
	// Failed: it failed; the text has the reason.
	Failed
)

// Usage is what a session used.
type Usage struct {
	Turns                                   uint32
	InputTokens, CachedTokens, OutputTokens uint64
	CostUSD                                 float64
	// IsCostKnown is false where the model's price is not known.
	IsCostKnown bool
}

// Finish is the end of a session.
type Finish struct {
	Ending Ending
	// Text is the agent's last text, or the reason if the session failed.
	Text  string
	Usage Usage
}

// Outcome is the agent's last text if the session ended by itself with one; else the reason that there is none.
func (f Finish) Outcome() (string, error) {
	switch {
	case f.Ending == Success && f.Text != "":
		return f.Text, nil
	case f.Ending == Failed:
		return "", errors.New(f.Text)
	}
	return "", errors.New([...]string{
		"the session ended without a text", "the session used up its turns", "the session used up its budget",
		"the session ran out of time", "the session was interrupted",
	}[f.Ending])
}

type hostCall struct{ id, name, input string }

// hostEvent is what a session says next: nothing yet, a text, a call, its end, or that its end was taken.
type hostEvent struct {
	isPending, isEnded bool
	text               string
	call               *hostCall
	finish             *Finish
}

// Ask runs an agent session to its end, and is its last text. Goroutines may ask side by side.
func Ask(options SessionOptions) (string, error) {
	finish, err := Run(options)
	if err != nil {
		return "", err
	}
	return finish.Outcome()
}

// Run runs an agent session to its end, and answers the calls of its own tools. Goroutines may run sessions side by
// side.
func Run(options SessionOptions) (Finish, error) {
	session, err := hostQuery(options)
	if err != nil {
		return Finish{}, err
	}
	defer session.drop()
	for {
		event, err := session.next()
		switch {
		case err != nil:
			return Finish{}, err
		case event.isPending:
			wait(session)
		case event.isEnded:
			return Finish{}, errors.New("the session ended without a last text")
		case event.call != nil:
			content, failed := answer(options.OwnTools, event.call)
			if err := session.answer(event.call.id, content, failed); err != nil {
				return Finish{}, err
			}
		case event.finish != nil:
			return *event.finish, nil
		}
	}
}

func answer(tools []Tool, call *hostCall) (string, error) {
	for _, tool := range tools {
		if tool.Name == call.name {
			value, err := tool.call([]byte(call.input))
			if err != nil {
				return "", err
			}
			text, err := json.Marshal(value)
			return string(text), err
		}
	}
	return "", fmt.Errorf("there is no tool %s", call.name)
}

// A component has one thread. What its goroutines wait for is slept for together, in the host, by Follow.
type waiter struct {
	session *hostSession
	ready   chan struct{}
}

var (
	waiters []waiter
	news    = make(chan struct{}, 1)
)

// wait blocks a goroutine until its session has an event.
func wait(session *hostSession) {
	ready := make(chan struct{})
	waiters = append(waiters, waiter{session, ready})
	select {
	case news <- struct{}{}:
	default:
	}
	<-ready
}

// yields is how often other goroutines are let run before the component sleeps: each of them runs until it blocks.
const yields = 16

// Follow runs work with all goroutines that it starts, and sleeps in the host while all of them wait for sessions. The
// package autonomous calls it.
func Follow(work func() (string, error)) (text string, err error) {
	done := make(chan struct{})
	go func() {
		text, err = work()
		close(done)
	}()
	for {
		select {
		case <-done:
			return text, err
		case <-news:
		}
		for len(waiters) > 0 {
			for range yields {
				runtime.Gosched()
			}
			select {
			case <-done:
				return text, err
			default:
				wake()
			}
		}
	}
}

// wake sleeps until some sessions have an event, and wakes those who wait for them.
func wake() {
	sessions := make([]*hostSession, len(waiters))
	for i, waiter := range waiters {
		sessions[i] = waiter.session
	}
	ready := hostWait(sessions)
	kept := waiters[:0:0]
	for i, waiter := range waiters {
		if slices.Contains(ready, uint32(i)) {
			close(waiter.ready)
		} else {
			kept = append(kept, waiter)
		}
	}
	waiters = kept
}
