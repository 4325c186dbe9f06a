#!/usr/bin/env bash
# Install the system packages the tests use: wrk (load), haproxy (a balancer that cuts), nginx (a proxy that
# buffers, and one that ends TLS), redis-server and postgresql (the shared stores), pgbouncer (a pooler), chromium (the dashboard's page), node and npm.
# Does nothing when all of them are present. Usage: install-system.sh [package ...] installs just those instead.
set -euo pipefail

wanted=("$@")
if [ $# -eq 0 ]; then
  # Debian puts haproxy and nginx in /usr/sbin, which an ordinary user's PATH may lack.
  PATH="$PATH:/usr/sbin"
  command -v wrk >/dev/null || wanted+=(wrk)
  command -v haproxy >/dev/null || wanted+=(haproxy)
  command -v nginx >/dev/null || wanted+=(nginx)
  command -v redis-server >/dev/null || wanted+=(redis-server)
  ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || wanted+=(postgresql)
  command -v pgbouncer >/dev/null || wanted+=(pgbouncer)
  command -v chromium >/dev/null || wanted+=(chromium)
  { command -v node && command -v npm; } >/dev/null || wanted+=(nodejs npm)
fi

if [ ${#wanted[@]} -eq 0 ]; then
  echo "system packages: nothing to do"
  exit 0
fi
if ! command -v apt-get >/dev/null; then
  echo "system packages: please install ${wanted[*]} with this system's package manager; apt-get is not here" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "system packages: root or sudo is needed to install ${wanted[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
# The tests start PostgreSQL by themselves: the package must not make a cluster of its own.
if [[ " ${wanted[*]} " == *" postgresql "* ]]; then
  "${as_root[@]}" mkdir -p /etc/postgresql-common
  [ -e /etc/postgresql-common/createcluster.conf ] ||
    echo "create_main_cluster = false" | "${as_root[@]}" tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
echo "system packages: installing ${wanted[*]}"
# One source that cannot be reached must not stop the others: the install below is what decides.
"${as_root[@]}" apt-get update -qq || true
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${wanted[@]}" >/dev/null
