#!/bin/sh
# Start the run; a run that stands in the folder of flower.out is gone on with. It ends with 0 where the run is whole.
umask 077
cd "$(dirname "$0")" || exit 1
export FLWR_HOME="$PWD/.flwr"
export FLWR_TELEMETRY_ENABLED="${FLWR_TELEMETRY_ENABLED:-0}" FLWR_DISABLE_UPDATE_CHECK="${FLWR_DISABLE_UPDATE_CHECK:-1}"
log=.flwr/run-$$.log
trap 'rm -f "$log"' EXIT
told="run.sh: the run goes on at the server; FLWR_HOME=$FLWR_HOME flwr stop RUN deployment stops it"
trap 'echo "$told" >&2; exit 130' INT
flwr run . deployment --stream "$@" 2>&1 | tee "$log"
run=$(sed -n 's/.*Successfully started run \([0-9]*\).*/\1/p' "$log" | tail -n 1)
case $(flwr list deployment --run-id "${run:-0}" --format json 2>&1) in
*finished:completed*) exit 0 ;;
esac
if [ -z "$run" ]; then
  echo "run.sh: nothing was started; the last lines say why. A key of --run-config must stand in pyproject.toml, under" \
    "[tool.flwr.app.config]" >&2
  exit 1
fi
echo "run.sh: the run was not finished; its last lines say why, and sh run.sh begins it or goes on with it" >&2
exit 1
