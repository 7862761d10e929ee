#!/bin/sh
# Reads tables that Firn wrote with PyIceberg, DuckDB and ClickHouse (chdb), by
# REST catalog and by path, and fails on any difference. Everything that it
# installs lies in .interop/ of the repository. FIRN_BIN names a binary to test
# instead of a fresh build; arguments go to interop.py.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work="$root/.interop"
mkdir -p "$work"

venv="$work/venv"
if ! cmp -s "$here/requirements.txt" "$work/installed.txt"; then
	rm -rf "$venv"
	python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
	cp "$here/requirements.txt" "$work/installed.txt"
fi

firn=${FIRN_BIN:-}
if [ -z "$firn" ]; then
	firn="$work/firn"
	(cd "$root" && go build -o "$firn" ./cmd/firn)
fi

store=$(mktemp -d "$work/store.XXXXXX")
port=$("$venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$firn" serve --store "file://$store" --listen "127.0.0.1:$port" >"$work/firn.log" 2>&1 &
server=$!
stop() {
	kill "$server" 2>/dev/null || true
	wait "$server" 2>/dev/null || true
	rm -rf "$store"
}
trap stop EXIT
trap 'exit 1' INT TERM

url="http://127.0.0.1:$port"
"$venv/bin/python" - "$url" <<'PY' || { cat "$work/firn.log" >&2; exit 1; }
import sys, time, urllib.request
for _ in range(300):
    try:
        urllib.request.urlopen(sys.argv[1] + "/healthz", timeout=2).read()
        sys.exit(0)
    except OSError:
        time.sleep(0.1)
sys.exit("firn did not become healthy in 30 s")
PY
"$venv/bin/python" "$here/interop.py" --url "$url" --store "$store" "$@"
