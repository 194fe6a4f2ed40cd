// Package convert turns what the host says into the types of the SDK, and back.
package convert

import (
	"guild"
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
)

// Activation is an activation as the SDK has it.
func Activation(a guild_worker_types.Activation) guild.Activation {
	to := guild.Activation{Posture: a.Posture, GrantedTools: a.GrantedTools, Bounds: bounds(a.Bounds)}
	if a.Context.Tag() == guild_worker_types.ContextCommission {
		commission := a.Context.Commission()
		to.Job, to.Description = commission.Job, commission.Request.Description
		to.Task, to.Config = commission.Request.Task, commission.Request.Config
		if commission.Attempt.IsSome() {
			attempt := commission.Attempt.Some()
			to.Attempt = &guild.Attempt{
				Commission: attempt.Commission, Number: attempt.Number, Dependencies: attempt.Dependencies,
			}
		}
	} else {
		meeting := a.Context.Meeting()
		to.Meeting = &guild.Meeting{ID: meeting.Id, Agenda: meeting.Agenda, Artifacts: meeting.Artifacts}
	}
	if a.Project.IsSome() {
		to.Project = &guild.ProjectInfo{Name: a.Project.Some().Name, Root: a.Project.Some().Root}
	}
	for _, scope := range a.Scopes {
		to.Scopes = append(to.Scopes, guild.Scope(scope))
	}
	for _, note := range a.Memories {
		to.Memories = append(to.Memories, guild.Note{
			Scope: guild.Scope(note.Scope), Key: note.Key, Content: note.Content, Modified: note.Modified,
			Origin: note.Origin.SomeOr(""),
		})
	}
	for _, tool := range a.ToolboxTools {
		to.ToolboxTools = append(to.ToolboxTools, guild.ToolInfo{
			Name: tool.Name, Title: tool.Title.SomeOr(""), Description: tool.Description,
			InputSchema: tool.InputSchema, OutputSchema: tool.OutputSchema.SomeOr(""), ReadOnly: tool.ReadOnly,
		})
	}
	return to
}

func bounds(b guild_worker_types.Bounds) guild.Bounds {
	return guild.Bounds{
		MaxTurns:        b.MaxTurns.SomeOr(0),
		MaxBudgetUSD:    b.MaxBudgetUsd.SomeOr(0),
		DeadlineSeconds: b.DeadlineSeconds.SomeOr(0),
	}
}

// Bounds are bounds as the host has them.
func Bounds(b guild.Bounds) guild_worker_types.Bounds {
	return guild_worker_types.Bounds{
		MaxTurns:        Option(b.MaxTurns),
		MaxBudgetUsd:    Option(b.MaxBudgetUSD),
		DeadlineSeconds: Option(b.DeadlineSeconds),
	}
}

// Option is none for a zero value.
func Option[T comparable](value T) wit.Option[T] {
	var none T
	if value == none {
		return wit.None[T]()
	}
	return wit.Some(value)
}
