# Sourced by the scripts that install: each directory is installed from a lock file of tools/locks, and has a stamp with the
# hash of that file. A directory whose stamp is right is not installed again.
changed=no

# stale <directory> <lock file>: begin a directory anew, unless it was installed from this very lock file
stale() {
  sum=$(sha256sum <"$2")
  [ ! -f "$1/.stamp" ] || [ "$(cat "$1/.stamp")" != "$sum" ] || return 1
  echo "installing $1 from $2"
  rm -rf "$1"
  mkdir -p "$1"
}

# done_with <directory>: what `stale` began is complete
done_with() {
  echo "$sum" >"$1/.stamp"
  changed=yes
}

# npm_locked <directory> <name>: the packages of tools/locks/npm/<name>
npm_locked() {
  local lock=tools/locks/npm/$2
  stale "$1" "$lock/package-lock.json" || return 0
  cp "$lock/package.json" "$lock/package-lock.json" "$1"
  (cd "$1" && npm ci --no-audit --no-fund --loglevel=error >/dev/null)
  done_with "$1"
}

# python_locked <directory> <name> <python>: an environment with the packages of tools/locks/<name>.txt
python_locked() {
  stale "$1" "tools/locks/$2.txt" || return 0
  "$3" -m venv "$1"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "tools/locks/$2.txt"
  done_with "$1"
}
