// Package worker makes a worker whose sessions the host runs: it checks dispatches and plans them.
package worker

import (
	"errors"

	"guild"
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
	"guild/internal/config"
	"guild/internal/convert"
	export "guild/internal/exports/export_guild_worker_dispatch"
)

// Plan is how the session of a job is to run. What is left empty is as Planned has it.
type Plan struct {
	// SystemPrompt is by default the posture, the task, the memories, and how to use the internal tools.
	SystemPrompt string
	// Prompt is the message that starts the session; by default the task.
	Prompt string
	// Model is the preferred model.
	Model string
	// Bounds narrow those of the job.
	Bounds guild.Bounds
}

// Export makes plan the worker of this component; call it in init. Sessions have those of tools that were granted, and
// all tools of the member's toolboxes.
//
// C is a struct with the keys of a dispatch's config. The bounds maxTurns, maxBudgetUsd and deadlineSeconds are taken
// besides; other keys are refused by name. An error that plan returns is a refusal: guild.Unsupported for work that
// the worker does not do, and any other for a config that is not acceptable.
func Export[C any](tools []string, plan func(a guild.Activation, config C) (Plan, error)) {
	export.Activate = func(from guild_worker_types.Activation) wit.Result[guild_worker_types.Plan, guild_worker_types.Refusal] {
		a := convert.Activation(from)
		return answer(func() (guild_worker_types.Plan, error) {
			settings, bounds, err := Config[C](a)
			if err != nil {
				return guild_worker_types.Plan{}, err
			}
			planned, err := plan(a, settings)
			if err != nil {
				return guild_worker_types.Plan{}, err
			}
			planned.Bounds = planned.Bounds.Within(bounds)
			return guild_worker_types.MakePlanSession(session(a, tools, planned)), nil
		})
	}
}

// ExportOwn makes a worker of which every dispatch is carried out by the component itself. The package autonomous calls
// it.
func ExportOwn[C any]() {
	export.Activate = func(from guild_worker_types.Activation) wit.Result[guild_worker_types.Plan, guild_worker_types.Refusal] {
		a := convert.Activation(from)
		return answer(func() (guild_worker_types.Plan, error) {
			_, bounds, err := Config[C](a)
			return guild_worker_types.MakePlanOwnRun(convert.Bounds(bounds.Within(a.Bounds))), err
		})
	}
}

// Config reads the config of a dispatch, and the bounds that it asks for.
func Config[C any](a guild.Activation) (settings C, bounds guild.Bounds, err error) {
	if a.Meeting != nil {
		return settings, bounds, guild.Unsupported("this worker takes commissions, not meetings")
	}
	asked, err := config.Read(a.Config, &settings)
	return settings, guild.Bounds(asked), err
}

func answer(plan func() (guild_worker_types.Plan, error)) wit.Result[guild_worker_types.Plan, guild_worker_types.Refusal] {
	planned, err := plan()
	var unsupported guild.Unsupported
	switch {
	case err == nil:
		return wit.Ok[guild_worker_types.Plan, guild_worker_types.Refusal](planned)
	case errors.As(err, &unsupported):
		return wit.Err[guild_worker_types.Plan](guild_worker_types.MakeRefusalUnsupported(err.Error()))
	default:
		return wit.Err[guild_worker_types.Plan](guild_worker_types.MakeRefusalInvalidConfig(err.Error()))
	}
}

func session(a guild.Activation, tools []string, p Plan) guild_worker_types.SessionPlan {
	if p.Prompt == "" {
		p.Prompt = a.Task
	}
	if p.SystemPrompt == "" {
		p.SystemPrompt = guild.SystemPrompt(a, a.Task)
	}
	plan := guild_worker_types.SessionPlan{
		SystemPrompt: p.SystemPrompt, Prompt: p.Prompt, Model: convert.Option(p.Model),
		Bounds: convert.Bounds(p.Bounds.Within(a.Bounds)), Tools: guild.Granted(a, tools...),
	}
	for _, tool := range a.ToolboxTools {
		plan.ToolboxTools = append(plan.ToolboxTools, tool.Name)
	}
	return plan
}
