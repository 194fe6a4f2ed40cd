// Package export_guild_worker_toolbox has what the bindings of `toolbox` call. The package toolbox sets it.
package export_guild_worker_toolbox

import (
	"guild/internal/bindings/guild_worker_toolbox"
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
)

// ListTools lists the tools.
var ListTools func() []guild_worker_types.ToolDefinition

// CallTool calls a tool.
var CallTool func(name, input string) wit.Result[string, guild_worker_toolbox.ToolError]
