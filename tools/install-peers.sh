#!/usr/bin/env bash
# Install the other packages, each in an environment of its own: .peers/mcp1, mcp2, fastmcp, mcp-proxy, typescript, supergateway.
# They never share our environment: we test against what their users have. The lock files of the first three have our own
# dependencies too, because a hosted object of such a package runs in one process with Limpet.
# Usage: install-peers.sh [python]
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/locked.sh
python=${1:-python3.11}

for name in mcp1 mcp2 fastmcp mcp-proxy; do python_locked .peers/$name $name "$python"; done
npm_locked .peers/typescript typescript
npm_locked .peers/supergateway supergateway
[ $changed = yes ] || echo "peers: nothing to do"
