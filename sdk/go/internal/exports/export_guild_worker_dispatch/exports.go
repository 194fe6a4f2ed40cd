// Package export_guild_worker_dispatch has what the bindings of `dispatch` call.
package export_guild_worker_dispatch

import (
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
)

// Activate checks a dispatch and plans it. The package worker sets it.
var Activate func(guild_worker_types.Activation) wit.Result[guild_worker_types.Plan, guild_worker_types.Refusal]
