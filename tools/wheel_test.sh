#!/usr/bin/env bash
# Build the wheel, install it alone in an empty environment, and use it as a stranger would.
# Usage: wheel_test.sh install [python with the `build` package]; wheel_test.sh try
# Two steps, because the second measures time and wants the machine for itself.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
room=$root/build/wheel
python=$room/venv/bin/python

install() {
  local builder=${1:-.venv/bin/python}
  rm -rf "$room"
  mkdir -p "$room"
  echo "wheel: building"
  "$builder" -m build --wheel --outdir "$room/dist" . >"$room/build.log" 2>&1 || { cat "$room/build.log" >&2; exit 1; }
  "$builder" -m venv --without-pip "$room/venv"
  "$builder" -m pip --python "$python" install --quiet --disable-pip-version-check "$room"/dist/*.whl
}

try() {
  # Away from the checkout, so that only what is in the wheel can be imported.
  unset PYTHONPATH
  cd "$room"
  "$python" -c 'import holdfast; assert "site-packages" in holdfast.__file__, holdfast.__file__'
  "$python" -c 'import holdfast, pathlib; assert (pathlib.Path(holdfast.__file__).parent / "py.typed").exists()'
  "$room/venv/bin/holdfast" --help >/dev/null
  echo "wheel: imports, is typed, and its command answers"
  "$python" "$root/tools/import_time.py"
  "$python" "$root/tests/wheel_smoke.py"
  echo "wheel: smoke test passed"
}

"$@"
