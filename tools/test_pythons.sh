#!/usr/bin/env bash
# Run the unit, property, contract and client tests with other versions of Python, each in its own environment.
# Usage: test_pythons.sh [--bench] [3.12 3.13 ...]; without versions, every newer one that is installed, and at least one.
# --bench measures the main workloads instead, and leaves the documents unchanged.
set -euo pipefail
cd "$(dirname "$0")/.."
run=tests
if [ "${1:-}" = --bench ]; then
  run=bench
  shift
fi
tests=(tests/unit tests/properties tests/contracts tests/client)

found() { # print the interpreter of a version: from the path, or from pyenv
  local candidate root
  root=$(pyenv root 2>/dev/null || true)
  for candidate in "$(command -v "python$1" || true)" ${root:+"$root"/versions/"$1".*/bin/python}; do
    if [ -x "$candidate" ] && "$candidate" -c 'import venv' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  return 1
}

tried=0
for version in "${@:-3.12 3.13 3.14}"; do
  for one in $version; do
    if ! python=$(found "$one"); then
      [ $# -eq 0 ] || { echo "Python $one is not installed" >&2; exit 1; }
      continue
    fi
    room=.pythons/$one
    [ -x "$room/bin/python" ] || "$python" -m venv "$room"
    "$room/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/locks/dev.txt
    "$room/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
    echo "== $("$room/bin/python" --version)"
    if [ $run = bench ]; then
      "$room/bin/python" -m bench --quick --out "build/bench/$one"
    else
      "$room/bin/python" -m pytest -q -n 2 --dist loadfile -p no:cacheprovider "${tests[@]}"
    fi
    tried=$((tried + 1))
  done
done
[ "$tried" -gt 0 ] || { echo "no newer Python is installed: install 3.12 or 3.13" >&2; exit 1; }
