#!/usr/bin/env bash
# Install the other packages, each in an environment of its own: .peers/mcp1, mcp2, fastmcp, mcp-proxy and typescript.
# They never share our environment: we test against what their users have. Our own dependencies are added to each of
# them, because a hosted object of such a package runs in one process with Holdfast.
# Usage: install-peers.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/versions.env
python=${1:-python3.11}
changed=no
ours=$("$python" -c 'import tomllib; print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]))')

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

# runtime <name>: what `holdfast serve` needs in the environment of the package
runtime() {
  local home=.peers/$1 stamp=.peers/$1/.runtime
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$ours" ]; then
    return
  fi
  echo "peers: adding the dependencies of holdfast to $home"
  echo "$ours" >"$home/ours.txt"
  "$home/bin/python" -m pip install --quiet --disable-pip-version-check -r "$home/ours.txt"
  mv "$home/ours.txt" "$stamp"
  changed=yes
}

peer mcp1 "mcp==$MCP1"
peer mcp2 "mcp==$MCP2"
peer fastmcp "fastmcp==$FASTMCP"
peer mcp-proxy "mcp-proxy==$MCP_PROXY"
for name in mcp1 mcp2 fastmcp; do runtime $name; done
want="server $TS_SERVER, node $TS_SERVER_NODE, zod $ZOD"
home=.peers/typescript
if [ ! -f $home/.stamp ] || [ "$(cat $home/.stamp)" != "$want" ]; then
  echo "peers: installing $want in $home"
  rm -rf $home
  mkdir -p $home
  printf '{"private": true, "type": "module"}\n' >$home/package.json
  npm install --prefix $home --no-save --no-package-lock --no-audit --no-fund --loglevel=error \
    "@modelcontextprotocol/server@$TS_SERVER" "@modelcontextprotocol/node@$TS_SERVER_NODE" "zod@$ZOD" >/dev/null
  echo "$want" >$home/.stamp
  changed=yes
fi
[ $changed = yes ] || echo "peers: nothing to do"
