# Names for what people do here. `just` is a convenience: every line works without it.

_default:
    @just --list

# Build everything, and show one job from task to report
demo:
    cargo xtask demo

# Build everything, then check format, lints and tests
test:
    cargo xtask test

# Let MCP clients that are not ours work with a host
clients:
    cargo xtask clients

# Measure the host against bare baselines
bench *names:
    cargo xtask bench {{names}}

# Check licences, sources, duplicates and advisories of all dependencies
deny:
    cargo xtask deny

# Fuzz all that reads untrusted bytes
fuzz *options:
    cargo xtask fuzz {{options}}

# Run hostile and healthy jobs side by side, and see that nothing grows
soak *options:
    cargo xtask soak {{options}}

# Build the plugins into guild-members/
guests:
    cargo xtask guests

# Serve the members of this repository
serve *options:
    cargo run --package guild -- serve --members guild-members {{options}}

# Give the researcher a task: just run "How does ...?" --sources DIR
run task *options:
    cargo run --package guild -- run guild-members/researcher {{quote(task)}} {{options}}

# Format the host and the plugins
fmt:
    cargo fmt --all
    cargo fmt --all --manifest-path plugins/Cargo.toml
