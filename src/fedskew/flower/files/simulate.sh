#!/bin/sh
# Run it here, with all nodes simulated by Flower.
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
exec flwr run . --stream "$@"
