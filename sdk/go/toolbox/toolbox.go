// Package toolbox makes a toolbox: tools are functions from an input to a result.
package toolbox

import (
	"encoding/json"
	"errors"
	"reflect"

	"guild/internal/bindings/guild_worker_toolbox"
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
	export "guild/internal/exports/export_guild_worker_toolbox"
	"guild/internal/schema"
)

// InvalidInput is the error of an input that is not acceptable: where, and what would be. Any other error says that
// the tool did not work.
type InvalidInput string

func (e InvalidInput) Error() string { return string(e) }

type tool struct {
	definition guild_worker_types.ToolDefinition
	call       func(input string) (string, error)
}

var tools []tool

// Add offers a tool; call it in init. What a model reads about its input and its result is made from In and Out: the
// tag `json` names a field, and `omitempty` there makes it optional; `doc` describes it; `enum` lists what a string may
// be; `min` and `max` bound a number or a length. The host holds inputs against it before the tool is called.
func Add[In, Out any](name, description string, call func(In) (Out, error)) {
	add(name, description, false, call)
}

// AddReadOnly offers a tool that changes nothing, so that a session may have several calls of it under way.
func AddReadOnly[In, Out any](name, description string, call func(In) (Out, error)) {
	add(name, description, true, call)
}

func add[In, Out any](name, description string, readOnly bool, call func(In) (Out, error)) {
	definition := guild_worker_types.ToolDefinition{
		Name: name, Title: wit.None[string](), Description: description, ReadOnly: readOnly,
		InputSchema: text(schema.Of(reflect.TypeFor[In]())), OutputSchema: wit.None[string](),
	}
	if out := schema.Of(reflect.TypeFor[Out]()); out["type"] == "object" {
		definition.OutputSchema = wit.Some(text(out))
	}
	tools = append(tools, tool{definition, func(input string) (string, error) {
		var in In
		if err := schema.Read([]byte(input), &in); err != nil {
			return "", InvalidInput(err.Error())
		}
		result, err := call(in)
		if err != nil {
			return "", err
		}
		text, err := json.Marshal(result)
		return string(text), err
	}})
}

func text(schema map[string]any) string {
	text, _ := json.Marshal(schema)
	return string(text)
}

func init() {
	export.ListTools = func() (all []guild_worker_types.ToolDefinition) {
		for _, tool := range tools {
			all = append(all, tool.definition)
		}
		return all
	}
	export.CallTool = func(name, input string) wit.Result[string, guild_worker_toolbox.ToolError] {
		for _, tool := range tools {
			if tool.definition.Name != name {
				continue
			}
			text, err := tool.call(input)
			var invalid InvalidInput
			switch {
			case err == nil:
				return wit.Ok[string, guild_worker_toolbox.ToolError](text)
			case errors.As(err, &invalid):
				return wit.Err[string](guild_worker_toolbox.MakeToolErrorInvalidInput(err.Error()))
			default:
				return wit.Err[string](guild_worker_toolbox.MakeToolErrorFailed(err.Error()))
			}
		}
		return wit.Err[string](guild_worker_toolbox.MakeToolErrorUnknownTool(name))
	}
}
