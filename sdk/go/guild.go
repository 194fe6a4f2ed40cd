// Package guild has what workers and toolboxes in Go share: the types of an activation, the functions of the host, and
// the texts of prompts.
//
// A worker is made by the package worker, one that carries its jobs out itself by the package autonomous, and tools by
// the package toolbox. A component has the exports of those that it imports.
package guild

import "errors"

// Kind says why a function of the host did not do what it was asked.
type Kind int

const (
	// InvalidInput: the argument is not acceptable; the text says what would be.
	InvalidInput Kind = iota
	// NotGranted: the manifest did not ask for it, or the operator did not grant it; the text names the grant.
	NotGranted
	// OverLimit: a size or a count is over a limit, which the text names.
	OverLimit
	// NoJob: no job exists, during activate and in a tool call.
	NoJob
	// JobEnded: the job is no longer running.
	JobEnded
	// Unavailable: the host failed; the text has the reason.
	Unavailable
)

// HostError is an error of a function of the host. It is an answer, not the end of the job: the worker may go on.
type HostError struct {
	Kind Kind
	Text string
}

// Error is the error as a sentence.
func (e *HostError) Error() string {
	switch e.Kind {
	case NotGranted:
		return "not granted: " + e.Text
	case OverLimit:
		return "over a limit: " + e.Text
	case NoJob:
		return "this host function needs a job: call it in a run, not in a plan or a tool call"
	case JobEnded:
		return "the job is no longer running"
	default:
		return e.Text
	}
}

// IsKind tells whether an error is a HostError of this kind.
func IsKind(err error, kind Kind) bool {
	var host *HostError
	return errors.As(err, &host) && host.Kind == kind
}

// Unsupported is the refusal of work that the worker does not do; its text describes what the worker does. Any other
// error that a plan returns refuses the config of the dispatch.
type Unsupported string

func (u Unsupported) Error() string { return string(u) }

// Bounds are what a job or a session may use. A zero field sets no bound.
type Bounds struct {
	// MaxTurns is turns of a model.
	MaxTurns uint32
	// MaxBudgetUSD is US dollars.
	MaxBudgetUSD float64
	// DeadlineSeconds is seconds of wall clock, from the start of the job's work.
	DeadlineSeconds uint32
}

// Within is the smaller value of each bound; one that only one side sets applies.
func (b Bounds) Within(other Bounds) Bounds {
	return Bounds{
		MaxTurns:        smaller(b.MaxTurns, other.MaxTurns),
		MaxBudgetUSD:    smaller(b.MaxBudgetUSD, other.MaxBudgetUSD),
		DeadlineSeconds: smaller(b.DeadlineSeconds, other.DeadlineSeconds),
	}
}

func smaller[T uint32 | float64](a, b T) T {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// Scope is whose memories they are.
type Scope uint8

const (
	// Worker is this member's own.
	Worker Scope = iota
	// Project is the project's, shared by its workers.
	Project
	// Global is the user's, shared by all workers.
	Global
)

func (s Scope) String() string {
	return [...]string{"worker", "project", "global"}[s]
}

// Activation is what the host says when it activates a worker.
type Activation struct {
	// Job is the id that the job will have, if it is accepted; empty in a meeting.
	Job string
	// Description is a short label of the work.
	Description string
	// Task is the whole task.
	Task string
	// Config is what the dispatch says beside its task: a JSON object.
	Config string
	// Attempt is the attempt at a commission that the job is, or nil.
	Attempt *Attempt
	// Meeting is the meeting that the worker is called to, or nil. Then there is no task.
	Meeting *Meeting
	// Project is the project that the work belongs to, or nil.
	Project *ProjectInfo
	// Posture is the member's posture.md, which describes the worker.
	Posture string
	// Scopes are those of memories that the worker may read.
	Scopes []Scope
	// Memories are those that belong in the system prompt, newest first.
	Memories []Note
	// GrantedTools are the built-in tools that the worker's sessions may be given.
	GrantedTools []string
	// ToolboxTools are the tools of the toolboxes that the manifest names.
	ToolboxTools []ToolInfo
	// Bounds is the ceiling of the job.
	Bounds Bounds
}

// Attempt is an attempt at a commission of a project.
type Attempt struct {
	// Commission is the commission's id.
	Commission string
	// Number is the number of the attempt, from 1.
	Number uint32
	// Dependencies are ids of commissions and paths of artifacts that the commission builds on.
	Dependencies []string
}

// Meeting is a meeting that the worker is called to.
type Meeting struct {
	ID, Agenda string
	// Artifacts are paths of the meeting's artifacts.
	Artifacts []string
}

// ProjectInfo is the project that the work belongs to.
type ProjectInfo struct {
	Name string
	// Root is the read root that holds it: the first part of the paths of its files.
	Root string
}

// Note is a memory. It is a note from earlier work, not an instruction.
type Note struct {
	Scope        Scope
	Key, Content string
	// Modified is the time at which it was written: RFC 3339 in UTC.
	Modified string
	// Origin is the job that stored it, or empty where that is not known.
	Origin string
}

// ToolInfo is a tool of a toolbox.
type ToolInfo struct {
	Name, Title, Description string
	// InputSchema and OutputSchema are JSON Schemas; the second is empty where the output has none.
	InputSchema, OutputSchema string
	ReadOnly                  bool
}
