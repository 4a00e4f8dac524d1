"""The files of an app as `fedskew flower init` writes them; words in braces are filled in."""

from __future__ import annotations

__all__ = [
    "CLIENT",
    "CONNECTION",
    "FRONT",
    "FRONT_CONFIG",
    "LICENSE",
    "NODE",
    "OUTSIDE",
    "PORT",
    "PRIVATE",
    "QUIET",
    "README",
    "REGISTER",
    "RUN",
    "SERVER",
    "SIMULATE",
    "SUPERLINK",
]

PORT = 8000  # of the SuperLink, on its machine alone
OUTSIDE = 8443  # of the front, for nodes of other machines
PRIVATE = """for path in keys keys/* state .flwr superlink.db*; do
  [ ! -e "$path" ] || chmod go= "$path"  # what another umask has made
done"""
QUIET = (  # Flower sends nothing to its makers
    'export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" '
    'FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"'
)
SERVER = '''"""The server: it trains the method of pyproject.toml with the nodes that have come."""

from pathlib import Path

from fedskew.flower import server_app

app = server_app(folder=Path(__file__).parent)
'''
CLIENT = '''"""A node: it trains on its own rows, and answers only what its configuration allows."""

from pathlib import Path

from fedskew.flower import client_app

app = client_app(folder=Path(__file__).parent)
'''
LICENSE = "Say here under which terms others may use this app. Flower wants the file.\n"
README = """# {name}

{method} with {clients} nodes, by fedskew on Flower. What can be changed stands in `pyproject.toml` under
`[tool.flwr.app.config]`: the options of `fedskew run`, and those of the deployment, which begin with `flower.`.

On this machine alone, with all nodes simulated:

    sh simulate.sh

On a machine for the server and one for each node, over TLS, see the page "deploy" of fedskew's guide; in short:

    fedskew flower keys --nodes {clients} --host SERVER      # once, beside this file
    sh superlink.sh                                          # on the server
    sh front.sh                                              # on the server, for nodes of other machines
    sh register.sh                                           # on the server, once
    sh node.sh 0 SERVER                                      # on the machine of node 0, and so on
    sh run.sh                                                # on the server

The method asks of a node: the number of its rows{needs}.
"""
SUPERLINK = """#!/bin/sh
# The server's link to the nodes, over TLS, for registered nodes only. Programs of this machine alone reach it: it takes
# commands, too. front.sh lets nodes of other machines in. It goes on where its database says.
umask 077
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr/server" FLWR_SUPEREXEC_TASK_POLL_INTERVAL="${POLL_S:-0.2}"  # Flower's own is 1 s
{quiet}
rm -rf "$FLWR_HOME/apps"  # an app that was half unpacked when its process was killed is taken for whole
{private}
exec python -m fedskew.flower.launcher superlink . --ssl-ca-certfile keys/ca.crt --ssl-certfile keys/server.crt \\
  --ssl-keyfile keys/server.key --enable-supernode-auth --host 127.0.0.1 --port "${LINK_PORT:-{port}}" \\
  --database superlink.db --disable-runtime-dependency-installation
"""
FRONT = """#!/bin/sh
# The door for nodes of other machines: HAProxy, which passes on what nodes need and nothing else (front.cfg).
cd "$(dirname "$0")" || exit 1
command -v haproxy >/dev/null || {
  echo "front.sh: haproxy must be installed (apt-get install haproxy); nodes of this machine need no front" >&2
  exit 2
}
export HOST="${HOST:-0.0.0.0}" PORT="${PORT:-{outside}}" LINK_PORT="${LINK_PORT:-{port}}"
exec haproxy -db -f front.cfg
"""
FRONT_CONFIG = """# TLS from outside; of the SuperLink's paths those of a node alone, for the keys in keys/nodes.lst.
# What the SuperLink serves beside them starts runs and registers nodes without asking who comes.
global
  maxconn 512
  log stderr format raw local0 notice
  ssl-load-extra-del-ext
  ssl-default-bind-options ssl-min-ver TLSv1.2

defaults
  mode http
  log global
  timeout connect 5s
  timeout http-request 15s
  timeout client 60s
  timeout server 600s

frontend nodes
  bind "${HOST}:${PORT}" ssl crt keys/server.crt alpn http/1.1 proto h1
  http-request deny deny_status 403 unless METH_POST { url -m str {paths} }
  http-request deny deny_status 401 unless { req.fhdr(flwr-public-key) -m str -f keys/nodes.lst }
  http-request deny deny_status 400 unless { req.ver 1.1 } { req.hdr(content-length) -m found }
  http-request deny deny_status 400 if { req.hdr(transfer-encoding) -m found }
  http-request deny deny_status 413 if { req.hdr_val(content-length) gt {largest} }
  http-request set-header Host localhost
  http-request set-header X-Forwarded-For %[src]
  http-request set-header X-Forwarded-Proto https
  default_backend superlink

backend superlink
  server superlink "127.0.0.1:${LINK_PORT}" ssl verify required ca-file keys/ca.crt verifyhost localhost
"""
REGISTER = """#!/bin/sh
# Tell the superlink which nodes may come. A key that it has already stays as it is; it is waited for a minute.
umask 077
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
{quiet}
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
"""
NODE = """#!/bin/sh
# Node K, which connects to the front at SERVER, or to the superlink of this machine: sh node.sh K [SERVER]. It runs the
# app of this folder and no other. ALLOW says what may leave it beside trained models and the number of its rows:
# {permits}; DATA names its own rows.
umask 077
cd "$(dirname "$0")" || exit 1
client=${1:?sh node.sh K [SERVER]} server=${2:-127.0.0.1}
link="$server:${LINK_PORT:-{port}}"
[ $# -lt 2 ] || link="$server:${PORT:-{outside}}"
config="client=$client allow='${ALLOW:-{allow}}' state='${STATE:-$PWD/state}'"
config="$config${DATA:+ data='$DATA'}${MORE:+ $MORE}"
export FLWR_HOME="$PWD/.flwr/node-$client" FLWR_SUPEREXEC_TASK_POLL_INTERVAL="${POLL_S:-0.2}"  # Flower's own is 1 s
{quiet}
rm -rf "$FLWR_HOME/apps"  # an app that was half unpacked when its process was killed is taken for whole
{private}
port=$((${NODE_PORT:-9094} + client))
if python -c "import socket, sys; sys.exit(socket.socket().connect_ex(('127.0.0.1', $port)))"; then
  echo "node.sh: node $client runs already, or another program has port $port; NODE_PORT=9194 takes others" >&2
  exit 2
fi
# A superlink keeps the place of a node that was killed for a minute, and refuses the node until then: it tries again.
last=$(($(date +%s) + ${AGAIN:-90}))
while :; do
  python -m fedskew.flower.launcher supernode . --root-certificates keys/ca.crt --superlink "$link" \\
    --auth-supernode-private-key "keys/node-$client" --port "$port" \\
    --node-config "$config" &
  node=$!
  trap 'kill "$node" 2>/dev/null; wait "$node"; exit 143' INT TERM HUP
  wait "$node" && exit 0
  code=$?
  [ "$code" -eq 1 ] || exit "$code"
  echo "node.sh: node $client was not let in. Its last process died less than a minute ago, or it is not registered" \\
    "(sh register.sh at the server), or nobody answers at $link." >&2
  [ "$(date +%s)" -lt "$last" ] || exit "$code"
  echo "node.sh: it tries again in 10 s, for $((last - $(date +%s))) s more" >&2
  sleep 10
done
"""
SIMULATE = """#!/bin/sh
# Run it here, with all nodes simulated by Flower.
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
{quiet}
exec flwr run . --stream "$@"
"""
RUN = """#!/bin/sh
# Start the run; a run that stands in the folder of flower.out is gone on with. It ends with 0 where the run is whole.
umask 077
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
{quiet}
log=.flwr/run-$$.log
trap 'rm -f "$log"' EXIT
told="run.sh: the run goes on at the server; FLWR_HOME=$FLWR_HOME flwr stop RUN deployment stops it"
trap 'echo "$told" >&2; exit 130' INT
flwr run . deployment --stream "$@" 2>&1 | tee "$log"
run=$(sed -n 's/.*Successfully started run \\([0-9]*\\).*/\\1/p' "$log" | tail -n 1)
case $(flwr list deployment --run-id "${run:-0}" --format json 2>&1) in
*finished:completed*) exit 0 ;;
esac
echo "run.sh: the run was not finished; its last lines say why, and sh run.sh goes on with it" >&2
exit 1
"""
CONNECTION = """[superlink]
default = "local"

[superlink.local]
address = ":local:"
options.num-supernodes = {clients}
options.backend.client-resources.num-cpus = 1

[superlink.deployment]
address = "127.0.0.1:{port}"
root-certificates = "{root}"
"""
