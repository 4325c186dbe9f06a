#!/usr/bin/env bash
# Run the tests in an environment of Python 3.12 or newer that measures lines and branches in every process, and record the result.
# Usage: coverage.sh [TEST ...]. Tests that compare times are left out: noting lines takes time.
set -euo pipefail
cd "$(dirname "$0")/.."
room=.pythons/coverage
if [ ! -x "$room/bin/python" ]; then
  for python in python3.14 python3.13 python3.12 "$(pyenv root 2>/dev/null || true)"/versions/3.1[2-9]*/bin/python; do
    "$python" -c 'import venv' 2>/dev/null && break
  done
  "$python" -m venv "$room" || { echo "coverage: install Python 3.12 or newer" >&2; exit 1; }
fi
"$room/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r tools/locks/dev.txt
"$room/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
"$room/bin/python" -m pip install --quiet --disable-pip-version-check "coverage==7.17.3"
site=$("$room/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp tools/coverage_start.py "$site/coverage_start.py"
# Every Python of this environment starts with it, also one that a test starts with few variables.
configuration=$PWD/build/coverage/coverage.ini
echo "import coverage_start; coverage_start.start('$configuration')" > "$site/coverage_start.pth"

rm -rf build/coverage
mkdir -p build/coverage
trap 'rm -f "$configuration"' EXIT
sed "s|^data_file = .*|data_file = $PWD/build/coverage/data|" tools/coverage.ini > "$configuration"
failed=0
try() {
  "$room/bin/python" -m pytest -q -p no:cacheprovider -k "not take_no_longer" "$@" || failed=$?
}
if [ $# -gt 0 ]; then
  try "$@"
else
  # Two at a time, and not with xdist: it kills a worker ten seconds after its last test, while it may still write what it has measured.
  # Left out are tests whose processes are killed, or are not Python.
  ( try tests/unit tests/rules tests/properties; exit $failed ) &
  try tests/{contracts,http,client,backs,redis,sqlite,postgres,checking,hosts,demo,observe,workers}
  wait $! || failed=$?
fi
mv "$configuration" build/coverage/report.ini
"$room/bin/python" -m coverage combine -q --rcfile=build/coverage/report.ini build/coverage
"$room/bin/python" -m coverage json -q --rcfile=build/coverage/report.ini -o build/coverage/report.json
"$room/bin/python" -m tools.covered record build/coverage/report.json
[ $failed = 0 ] || echo "coverage: some tests failed, so lines may be missing" >&2
