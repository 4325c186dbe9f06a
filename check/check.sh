#!/usr/bin/env bash
# The step of action.yml. Everything that the user of the action gives comes in variables, and is no part of a command line.
# CHECK_LIMPET names an installed command, for tests; without it, this repository at the chosen version is installed.
set -efuo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
room=${RUNNER_TEMP:-$(mktemp -d)}/limpet-check
report=$room/report.json
mkdir -p "$room"
limpet=${CHECK_LIMPET:-}
started=""

stop() {
  [ -z "$started" ] || kill -- "-$started" 2>/dev/null || true
}
trap stop EXIT

if [ -z "$limpet" ]; then
  "$CHECK_PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    { echo "::error::limpet check needs Python 3.11 or newer: use actions/setup-python before this step" >&2; exit 2; }
  "$CHECK_PYTHON" -m venv "$room/venv"
  install=("$room/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
  "${install[@]}" --require-hashes -r "$here/tools/locks/runtime.txt"
  "${install[@]}" --no-deps --no-build-isolation "$here"
  limpet=$room/venv/bin/limpet
fi

if [ -n "${CHECK_START:-}" ]; then
  # A process group of its own: the command may start others.
  set -m
  bash -c "$CHECK_START" >"$room/server.log" 2>&1 &
  started=$!
  set +m
  address=${CHECK_URL#*://}
  address=${address%%/*}
  ended=$((SECONDS + ${CHECK_READY_SECONDS:-60}))
  until (exec 3<>"/dev/tcp/${address%:*}/${address##*:}") 2>/dev/null; do
    kill -0 "$started" 2>/dev/null && [ $SECONDS -lt $ended ] ||
      { cat "$room/server.log" >&2; echo "::error::the server did not accept a connection at $address" >&2; exit 1; }
    sleep 0.2
  done
fi

options=()
[ -z "${CHECK_TOKEN:-}" ] || options+=(--token-env CHECK_TOKEN)
[ -z "${CHECK_TOOL:-}" ] || options+=(--tool "$CHECK_TOOL")
[ -z "${CHECK_ARGUMENTS:-}" ] || options+=(--arguments "$CHECK_ARGUMENTS")
for probe in ${CHECK_ONLY:-}; do options+=(--only "$probe"); done
[ "${CHECK_SLOW:-false}" != true ] || options+=(--slow)
status=0
"$limpet" check "$CHECK_URL" "${options[@]}" --json >"$report" || status=$?
[ -z "${GITHUB_OUTPUT:-}" ] || echo "report=$report" >>"$GITHUB_OUTPUT"
"${limpet%/*}/python" "$here/check/summary.py" "$report" "${GITHUB_STEP_SUMMARY:-/dev/stdout}"
exit "$status"
