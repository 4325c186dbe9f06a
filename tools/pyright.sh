#!/usr/bin/env bash
# The types as pyright sees them, which many editors use: every Python block of the documents and every example is
# accepted, and the public interface has no type that is missing or unclear.
set -euo pipefail
cd "$(dirname "$0")/.."
program=.node/pyright/node_modules/pyright/index.js
[ -f "$program" ] || { echo "types: pyright is not installed; make node installs it" >&2; exit 1; }

# It finds packages through the python of the PATH.
pyright() { PATH="$PWD/.venv/bin:$PATH" .node/bin/node "$program" "$@"; }

rm -rf build/pages
.venv/bin/python tools/doc_blocks.py build/pages
# The servers on FastMCP are checked with the packages of its own environment, where it is installed (make peers).
fastmcp=.peers/fastmcp/bin/python
mapfile -t examples < <(find examples -name '*.py' ! -name '*_fastmcp.py')
pyright build/pages "${examples[@]}"
if [ -x "$fastmcp" ]; then pyright --pythonpath "$fastmcp" examples/from_fastmcp/*_fastmcp.py; fi

log=build/pages/interface.txt
if ! pyright --verifytypes limpet --ignoreexternal >"$log"; then
  sed -n '/^Symbols used/,$p' "$log" >&2
  echo "types: annotate what is unclear above, where it is first assigned; the rest follows from it" >&2
  exit 1
fi
grep "completeness score" "$log"
