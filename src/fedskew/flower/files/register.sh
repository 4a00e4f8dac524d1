#!/bin/sh
# Tell the superlink which nodes may come. A key that it has already stays as it is; it is waited for a minute.
umask 077
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
failed=0 last=$(($(date +%s) + 60))
for key in keys/node-*.pub; do
  until said=$(flwr supernode register "$key" deployment 2>&1); do
    case $said in
    *"code: 23]"*) said="it is registered already" && break ;;
    *unavailable*) [ "$(date +%s)" -lt "$last" ] && sleep 1 && continue ;;
    esac
    failed=1 && break
  done
  echo "$key: $said"
done
exit "$failed"
