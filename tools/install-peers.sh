#!/usr/bin/env bash
# Install the Python clients, each in an environment of its own: .peers/mcp1, .peers/mcp2 and .peers/fastmcp.
# They never share our environment: we test against what their users have. Usage: install-peers.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/versions.env
python=${1:-python3.11}
changed=no

# peer <name> <requirement>
peer() {
  local home=.peers/$1 stamp=.peers/$1/.stamp
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$2" ]; then
    return
  fi
  echo "peers: installing $2 in $home"
  rm -rf "$home"
  "$python" -m venv "$home"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$2"
  echo "$2" >"$stamp"
  changed=yes
}

peer mcp1 "mcp==$MCP1"
peer mcp2 "mcp==$MCP2"
peer fastmcp "fastmcp==$FASTMCP"
[ $changed = yes ] || echo "peers: nothing to do"
