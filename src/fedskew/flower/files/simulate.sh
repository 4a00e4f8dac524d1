#!/bin/sh
# Run it here, with all nodes simulated by Flower.
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
trap : INT TERM  # flwr ends, and then this script
flwr run . --stream "$@"
code=$?
home=$(printf %s "$FLWR_HOME/" | sed 's/[][\\.*^$+?(){}|]/\\&/g')
pgrep -f "flower-superlink.* $home" >.flwr/pid  # of Flower's local SuperLink, which goes on, if this run started it
exit "$code"
