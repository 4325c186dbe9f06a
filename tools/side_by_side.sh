#!/usr/bin/env bash
# Run commands at once: the last one in front, the others behind it at low priority, each one's output shown whole
# when it ends. Fails if one of them failed.
# Usage: side_by_side.sh 'command' ['command' ...]
set -uo pipefail
room=$(mktemp -d)
behind=()
trap 'kill -- "${behind[@]/#/-}" 2>/dev/null; rm -rf "$room"' EXIT
trap 'exit 130' INT TERM

whole() { # run a command quietly, then say everything it said
  local log=$room/$BASHPID status=0
  nice -n 19 bash -c "$1" >"$log" 2>&1 || status=$?
  { echo; echo "== $1: $([ $status -eq 0 ] && echo done || echo "FAILED ($status)")"; cat "$log"; } >"$log.all"
  cat "$log.all"
  return $status
}

set -m # a process group for each of them, so that all of it can be ended
for command in "${@:1:$#-1}"; do
  whole "$command" &
  behind+=($!)
done
set +m
status=0
bash -c "${@: -1}" || status=1
for job in "${behind[@]}"; do
  wait "$job" || status=1
done
exit $status
