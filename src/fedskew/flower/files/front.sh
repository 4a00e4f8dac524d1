#!/bin/sh
# The door for nodes of other machines: HAProxy, which passes on what nodes need and nothing else (front.cfg).
cd "$(dirname "$0")" || exit 1
command -v haproxy >/dev/null || {
  echo "front.sh: haproxy must be installed (apt-get install haproxy); nodes of this machine need no front" >&2
  exit 2
}
export HOST="${HOST:-0.0.0.0}" PORT="${PORT:-8443}" LINK_PORT="${LINK_PORT:-8000}"
exec haproxy -db -f front.cfg
