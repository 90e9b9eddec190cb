# Recipes for people and for CI: CI calls these and nothing else.

set shell := ["bash", "-euo", "pipefail", "-c"]

# Lists the recipes.
default:
    @just --list --unsorted

# The main job: the whole way of a Deployment, offline.
demo *ARGS:
    cargo run --release -- demo {{ARGS}}

# All tests; the second of the two commands in the README.
test:
    cargo test --workspace

# Formatting, without changing anything.
fmt:
    cargo fmt --all --check

# Clippy over everything, warnings are errors.
lint:
    cargo clippy --workspace --all-targets --locked -- -D warnings

# Documentation builds without warnings.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

# Imports point one way.
layers:
    .ci/layers

# The engine without the API types, and the scheduler without the offline cluster, build alone.
alone:
    cargo check --locked -p scheduler-core --no-default-features
    cargo check --locked -p scheduler-bin --no-default-features

# Licences, duplicate versions and sources of the dependencies.
deny:
    cargo deny --log-level error check bans licenses sources

# The template of a scheduler with plugins of its own: a crate outside the workspace.
example:
    CARGO_TARGET_DIR="$PWD/target" cargo test --locked --manifest-path examples/custom-scheduler/Cargo.toml

# What a laptop should pass before a pull request.
check: fmt layers lint doc deny test example

# What CI passes.
ci: fmt layers deny lint doc alone test example

# Benches; see benches/README.md.
bench *ARGS:
    cargo bench -p benches {{ARGS}}
