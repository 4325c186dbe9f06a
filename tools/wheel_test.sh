#!/usr/bin/env bash
# Build the source archive and the wheel twice, compare, install the wheel alone in an empty environment, and use it as a
# stranger would.
# Usage: wheel_test.sh install [python with the packages of tools/locks/runtime.txt]; wheel_test.sh try
# Two steps, because the first runs beside the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
room=$root/build/wheel
python=$room/venv/bin/python
uv=$root/.venv/bin/uv
# uv takes packages from the directory only, and keeps what it makes below build.
export UV_OFFLINE=1 UV_NO_INDEX=1 UV_FIND_LINKS=$room/wheels UV_CACHE_DIR=$room/cache

# build <source> <directory of the files> <python>
build() {
  # The wheel is built from the source archive, so both have all that is needed. Nothing is downloaded.
  (cd "$1" && "$3" -m build --no-isolation --outdir "$2" . >"$room/build.log" 2>&1) || { cat "$room/build.log" >&2; exit 1; }
}

# Build at another place, with files of another age and other permissions, in another time zone.
build_elsewhere() {
  (
    umask 077
    mkdir -p "$room/elsewhere"
    git ls-files -z --cached --others --exclude-standard | xargs -0 ls -d 2>/dev/null |
      tar --create --files-from - | tar --extract --touch --no-same-permissions --directory "$room/elsewhere"
    TZ=Asia/Tokyo PYTHONHASHSEED=1 build "$room/elsewhere" "$room/again" "$1"
  )
}

install() {
  local builder=${1:-.venv/bin/python}
  case $builder in /*) ;; *) builder=$root/$builder ;; esac
  rm -rf "$room"
  mkdir -p "$room"
  echo "wheel: building"
  build "$root" "$room/dist" "$builder"
  build_elsewhere "$builder"
  for file in "$room"/dist/*; do
    cmp "$file" "$room/again/$(basename "$file")" || { echo "wheel: two builds differ" >&2; exit 1; }
  done
  echo "wheel: two builds are equal"
  # The dependencies have the versions of the lock file; the metadata of the wheel says which of them are installed.
  "$builder" -m pip download --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all: \
    --dest "$room/wheels" -r tools/locks/runtime.txt
  "$builder" -m venv --without-pip "$room/venv"
  "$uv" pip install --quiet --compile-bytecode --python "$python" "$room"/dist/*.whl
}

try() {
  # Away from the checkout, so that only what is in the wheel can be imported.
  unset PYTHONPATH
  cd "$room"
  "$python" -c 'import limpet; assert "site-packages" in limpet.__file__, limpet.__file__'
  "$python" -c 'import limpet, pathlib; assert (pathlib.Path(limpet.__file__).parent / "py.typed").exists()'
  "$room/venv/bin/limpet" --help >/dev/null
  echo "wheel: imports, is typed, and its command answers"
  "$python" "$root/tools/import_time.py"
  "$python" "$root/tests/wheel_smoke.py" "${uv}x" "$room"/dist/*.whl
  echo "wheel: smoke test passed, and uvx serves a program with it"
}

"$@"
