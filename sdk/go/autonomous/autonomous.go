// Package autonomous makes a worker that carries its jobs out itself, with sessions of its own.
package autonomous

import (
	"guild"
	"guild/internal/bindings/guild_worker_types"
	wit "guild/internal/bindings/wit/types"
	"guild/internal/convert"
	export "guild/internal/exports/export_guild_worker_run"
	"guild/worker"
)

// Export makes run the worker of this component; call it in init. The text that run returns is the job's result, and an
// error fails the job. C has the keys of a dispatch's config, as for worker.Export; they are checked before the job
// begins.
//
// Goroutines that run starts may each run sessions (guild.Ask) side by side.
func Export[C any](run func(a guild.Activation, config C) (string, error)) {
	worker.ExportOwn[C]()
	export.Run = func(from guild_worker_types.Activation) wit.Result[string, string] {
		a := convert.Activation(from)
		text, err := guild.Follow(func() (string, error) {
			settings, _, err := worker.Config[C](a)
			if err != nil {
				return "", err
			}
			return run(a, settings)
		})
		if err != nil {
			return wit.Err[string](err.Error())
		}
		return wit.Ok[string, string](text)
	}
}
