//go:build wasm

package guild

import (
	"guild/internal/bindings/guild_worker_agent"
	"guild/internal/bindings/guild_worker_files"
	"guild/internal/bindings/guild_worker_job_tools"
	"guild/internal/bindings/guild_worker_log"
	"guild/internal/bindings/guild_worker_memory"
	"guild/internal/bindings/guild_worker_types"
	"guild/internal/bindings/guild_worker_web"
	wit "guild/internal/bindings/wit/types"
)

func hostError(e guild_worker_types.HostError) *HostError {
	switch e.Tag() {
	case guild_worker_types.HostErrorInvalidInput:
		return &HostError{InvalidInput, e.InvalidInput()}
	case guild_worker_types.HostErrorNotGranted:
		return &HostError{NotGranted, e.NotGranted()}
	case guild_worker_types.HostErrorOverLimit:
		return &HostError{OverLimit, e.OverLimit()}
	case guild_worker_types.HostErrorNoJob:
		return &HostError{Kind: NoJob}
	case guild_worker_types.HostErrorJobEnded:
		return &HostError{Kind: JobEnded}
	default:
		return &HostError{Unavailable, e.Unavailable()}
	}
}

// pair turns an answer of the host into Go's.
func pair[T any](answer wit.Result[T, guild_worker_types.HostError]) (T, error) {
	if answer.IsOk() {
		return answer.Ok(), nil
	}
	var none T
	return none, hostError(answer.Err())
}

func done(answer wit.Result[wit.Unit, guild_worker_types.HostError]) error {
	_, err := pair(answer)
	return err
}

func option[T comparable](value T) wit.Option[T] {
	var none T
	if value == none {
		return wit.None[T]()
	}
	return wit.Some(value)
}

func hostLog(level uint8, text string) { guild_worker_log.Write(level, text) }

func hostRead(path string, offset, limit uint32) (string, error) {
	return pair(guild_worker_files.Read(path, offset, limit))
}

func hostGrep(pattern, glob string, limit uint32) (found []Passage, err error) {
	passages, err := pair(guild_worker_files.Grep(pattern, option(glob), limit))
	for _, one := range passages {
		found = append(found, Passage{one.Path, one.Line, one.Text})
	}
	return found, err
}

func hostGlob(pattern string, limit uint32) ([]string, error) {
	return pair(guild_worker_files.Glob(pattern, limit))
}

func hostStore(scope Scope, key, content string) error {
	return done(guild_worker_memory.Store(uint8(scope), key, content))
}

func hostLoad(scope Scope, key string) (string, bool, error) {
	found, err := pair(guild_worker_memory.Load(uint8(scope), key))
	return found.SomeOr(""), err == nil && found.IsSome(), err
}

func hostList(scope Scope) (entries []Entry, err error) {
	found, err := pair(guild_worker_memory.List(uint8(scope)))
	for _, one := range found {
		entries = append(entries, Entry{one.Key, one.Bytes, one.Modified})
	}
	return entries, err
}

func hostDelete(scope Scope, key string) (bool, error) {
	return pair(guild_worker_memory.Delete(uint8(scope), key))
}

func hostSearch(query string, limit uint32) (hits []Hit, err error) {
	found, err := pair(guild_worker_web.Search(query, limit))
	for _, one := range found {
		hits = append(hits, Hit{one.Title, one.Url, one.Snippet})
	}
	return hits, err
}

func hostFetch(url string) (string, error) { return pair(guild_worker_web.Fetch(url)) }

func hostUpdateSummary(summary string) error {
	return done(guild_worker_job_tools.UpdateSummary(summary))
}

func hostRecordDecision(question, decision, reasoning string) error {
	return done(guild_worker_job_tools.RecordDecision(guild_worker_types.Decision{
		Question: question, Decision: decision, Reasoning: reasoning,
	}))
}

func hostLogQuestion(question string) error {
	return done(guild_worker_job_tools.LogQuestion(question))
}

func hostWriteArtifact(path string, contents []byte) error {
	return done(guild_worker_job_tools.WriteArtifact(path, contents))
}

func hostSubmitResult(output string) error { return done(guild_worker_job_tools.SubmitResult(output)) }

type hostSession struct{ session *guild_worker_agent.Session }

func hostQuery(o SessionOptions) (*hostSession, error) {
	options := guild_worker_agent.Options{
		Prompt: o.Prompt, SystemPrompt: o.SystemPrompt, Tools: o.Tools, JobTools: o.JobTools, Model: option(o.Model),
		Bounds: guild_worker_types.Bounds{
			MaxTurns:        option(o.Bounds.MaxTurns),
			MaxBudgetUsd:    option(o.Bounds.MaxBudgetUSD),
			DeadlineSeconds: option(o.Bounds.DeadlineSeconds),
		},
	}
	for _, tool := range o.OwnTools {
		options.OwnTools = append(options.OwnTools, guild_worker_types.ToolDefinition{
			Name: tool.Name, Title: wit.None[string](), Description: tool.Description, InputSchema: tool.schema,
			OutputSchema: wit.None[string](), ReadOnly: true,
		})
	}
	session, err := pair(guild_worker_agent.Query(options))
	if err != nil {
		return nil, err
	}
	return &hostSession{session}, nil
}

func (s *hostSession) next() (hostEvent, error) {
	step, err := pair(s.session.Next())
	if err != nil {
		return hostEvent{}, err
	}
	switch step.Tag() {
	case guild_worker_agent.StepPending:
		return hostEvent{isPending: true}, nil
	case guild_worker_agent.StepEnded:
		return hostEvent{isEnded: true}, nil
	}
	event := step.Event()
	switch event.Tag() {
	case guild_worker_agent.EventText:
		return hostEvent{text: event.Text()}, nil
	case guild_worker_agent.EventCall:
		call := event.Call()
		return hostEvent{call: &hostCall{call.Id, call.Name, call.Input}}, nil
	default:
		end := event.Finished()
		return hostEvent{finish: &Finish{
			Ending: Ending(end.Ending), Text: end.Text,
			Usage: Usage{
				Turns: end.Usage.Turns, InputTokens: end.Usage.InputTokens, CachedTokens: end.Usage.CachedTokens,
				OutputTokens: end.Usage.OutputTokens, CostUSD: end.Usage.CostUsd.SomeOr(0),
				IsCostKnown: end.Usage.CostUsd.IsSome(),
			},
		}}, nil
	}
}

func (s *hostSession) answer(call, content string, failed error) error {
	answer := wit.Ok[string, string](content)
	if failed != nil {
		answer = wit.Err[string](failed.Error())
	}
	return done(s.session.Answer(call, answer))
}

func (s *hostSession) drop() { s.session.Drop() }

func hostWait(sessions []*hostSession) []uint32 {
	all := make([]*guild_worker_agent.Session, len(sessions))
	for i, one := range sessions {
		all[i] = one.session
	}
	return guild_worker_agent.Wait(all)
}
