#!/bin/sh
# Node K, which connects to the front at SERVER, or to the superlink of this machine: sh node.sh K [SERVER]. It runs the
# app of this folder and no other. ALLOW says what may leave it beside trained models and the number of its rows:
# {permits}; DATA names its own rows. With SECURE=3 or more it sends nothing but its part of secure sums over that many
# nodes, and is for runs with them alone; with 0 for the others.
umask 077
cd "$(dirname "$0")" || exit 1
client=${1:?sh node.sh K [SERVER]} server=${2:-127.0.0.1}
link="$server:${LINK_PORT:-8000}"
[ $# -lt 2 ] || link="$server:${PORT:-8443}"
config="client=$client allow='${ALLOW:-{allow}}' state='${STATE:-$PWD/state}'"
config="$config secure=${SECURE:-{secure}}${DATA:+ data='$DATA'}${MORE:+ $MORE}"
export FLWR_HOME="$PWD/.flwr/node-$client" FLWR_SUPEREXEC_TASK_POLL_INTERVAL="${POLL_S:-0.2}"  # Flower's own is 1 s
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
port=$((${NODE_PORT:-9094} + client))
free="socket.socket().connect_ex(('127.0.0.1', $port)) or time.sleep(0.2)"  # a killed process frees its port soon
if python -c "import socket, sys, time; sys.exit(any($free for _ in range(20)))"; then
  echo "node.sh: node $client runs already, or another program uses port $port; set another one by NODE_PORT=9194" >&2
  exit 2
fi
rm -rf "$FLWR_HOME/apps"  # an app that was half unpacked when its process was killed is taken for whole
for path in keys keys/* state .flwr superlink.db*; do
  [ ! -e "$path" ] || chmod go= "$path"  # what another umask has made
done
# A superlink keeps the place of a node that was killed for a minute, and refuses the node until then: it tries again.
last=$(($(date +%s) + ${AGAIN:-90}))
while :; do
  python -m fedskew.flower.launcher supernode . --root-certificates keys/ca.crt --superlink "$link" \
    --auth-supernode-private-key "keys/node-$client" --port "$port" \
    --node-config "$config" &
  node=$!
  mkdir -p "$FLWR_HOME" && echo "$node" >"$FLWR_HOME/pid"  # kill "$(cat .flwr/node-K/pid)" ends node K, and this script
  trap 'kill "$node" 2>/dev/null; wait "$node"; exit 143' INT TERM HUP
  wait "$node" && exit 0
  code=$?
  [ "$code" -eq 1 ] || exit "$code"
  echo "node.sh: node $client was refused. Its last process died less than a minute ago, or it is not registered" \
    "(sh register.sh at the server), or nothing answers at $link." >&2
  [ "$(date +%s)" -lt "$last" ] || exit "$code"
  echo "node.sh: trying again in 10 s, for $((last - $(date +%s))) s more" >&2
  sleep 10
done
