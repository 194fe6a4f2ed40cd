// Package export_guild_worker_run has what the bindings of `run` call.
package export_guild_worker_run

import (
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
)

// Run carries a job out. The package autonomous sets it.
var Run func(guild_worker_types.Activation) wit.Result[string, string]
