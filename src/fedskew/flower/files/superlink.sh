#!/bin/sh
# The server's link to the nodes, over TLS, for registered nodes only. Programs of this machine alone reach it: it takes
# commands, too. front.sh lets nodes of other machines in. It goes on where its database says. LINK_PORT is its port.
umask 077
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr/server" FLWR_SUPEREXEC_TASK_POLL_INTERVAL="${POLL_S:-0.2}"  # Flower's own is 1 s
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
port=${LINK_PORT:-8000}
free="socket.socket().connect_ex(('127.0.0.1', $port)) or time.sleep(0.2)"  # a killed process frees its port soon
if python -c "import socket, sys, time; sys.exit(any($free for _ in range(20)))"; then
  echo "superlink.sh: port $port is in use: a superlink runs already, or another program; set another one by" \
    "LINK_PORT=8100, here and for front.sh and node.sh, and in .flwr/config.toml" >&2
  exit 2
fi
rm -rf "$FLWR_HOME/apps"  # an app that was half unpacked when its process was killed is taken for whole
for path in keys keys/* state .flwr superlink.db*; do
  [ ! -e "$path" ] || chmod go= "$path"  # what another umask has made
done
mkdir -p "$FLWR_HOME" && echo "$$" >"$FLWR_HOME/pid"  # kill "$(cat .flwr/server/pid)" ends it
exec python -m fedskew.flower.launcher superlink . --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt \
  --ssl-keyfile keys/server.key --enable-supernode-auth --host 127.0.0.1 --port "$port" \
  --database superlink.db --disable-runtime-dependency-installation
