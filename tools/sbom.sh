#!/usr/bin/env bash
# Write the list of every package that the wheel installs, with versions and licences, as CycloneDX (an SBOM).
# `make wheel` comes first: the list is of its empty environment. Usage: sbom.sh <file>
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/locked.sh
python_locked build/release release .venv/bin/python
build/release/bin/cyclonedx-py environment build/wheel/venv --pyproject pyproject.toml --mc-type library --output-reproducible \
  --output-file "$1"
