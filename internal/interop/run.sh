#!/bin/sh
# Reads tables that Firn wrote with PyIceberg, DuckDB and ClickHouse (chdb), by
# REST catalog and by path, and fails on any difference: first out of a file
# store, every type and transform; then some of them out of an S3-compatible
# server. Everything that it installs and builds lies in .interop/ of the
# repository.
#
#   FIRN_BIN=path      tests that binary instead of a fresh build
#   INTEROP_STORES     "file s3" (default), or one of them
#   INTEROP_SPARK=1    reads with Spark too, out of the file store: another
#                      400 MB to install, two minutes more, needs Java 17 and mvn
#
# Arguments go to interop.py (--only NAME, --engines LIST, --trace).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work="$root/.interop"
python="$work/venv/bin/python"
mkdir -p "$work"

spark_runtime=iceberg-spark-runtime-3.5_2.12
spark_version=1.10.0

install() {
	if ! cmp -s "$here/requirements.txt" "$work/installed.txt"; then
		rm -rf "$work/venv"
		python3 -m venv "$work/venv"
		"$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements.txt"
		cp "$here/requirements.txt" "$work/installed.txt"
	fi
	[ "${INTEROP_SPARK:-}" = 1 ] || return 0
	"$python" -m pip install --quiet --disable-pip-version-check -r "$here/requirements-spark.txt"
	INTEROP_SPARK_JAR="$work/jars/$spark_runtime-$spark_version.jar"
	export INTEROP_SPARK_JAR
	[ -f "$INTEROP_SPARK_JAR" ] || mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy \
		-Dartifact="org.apache.iceberg:$spark_runtime:$spark_version" -DoutputDirectory="$work/jars"
}

free_port() {
	"$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# wait_for URL LOG waits until a server answers.
wait_for() {
	"$python" - "$1" <<'PY' || { cat "$2" >&2; exit 1; }
import sys, time, urllib.error, urllib.request
for _ in range(300):
    try:
        urllib.request.urlopen(sys.argv[1], timeout=2).read()
        sys.exit(0)
    except OSError:
        time.sleep(0.1)
sys.exit(sys.argv[1] + " did not answer within 30 s")
PY
}

pids=
folder=
stop() {
	for pid in $pids; do
		kill "$pid" 2>/dev/null || true
		wait "$pid" 2>/dev/null || true
	done
	pids=
	[ -z "$folder" ] || rm -rf "$folder"
	folder=
}
trap stop EXIT
trap 'exit 1' INT TERM

# serve STORE [OPTION…] starts Firn and sets url.
serve() {
	store=$1
	shift
	port=$(free_port)
	url="http://127.0.0.1:$port"
	"$firn" serve --store "$store" --listen "127.0.0.1:$port" "$@" >"$work/firn.log" 2>&1 &
	pids="$! $pids"
	wait_for "$url/healthz" "$work/firn.log"
}

run_file() {
	folder=$(mktemp -d "$work/store.XXXXXX")
	serve "file://$folder"
	engines=pyiceberg,duckdb,clickhouse
	[ "${INTEROP_SPARK:-}" != 1 ] || engines="$engines,spark"
	"$python" "$here/interop.py" --url "$url" --store "$folder" --engines "$engines" "$@"
	stop
}

run_s3() {
	server="$work/versitygw"
	(cd "$root/internal/tools/s3server" && go build -ldflags="-s -w" -o "$server" github.com/versity/versitygw/cmd/versitygw)
	folder=$(mktemp -d "$work/s3.XXXXXX")
	mkdir -p "$folder/firn-interop"
	export AWS_ACCESS_KEY_ID=interop AWS_SECRET_ACCESS_KEY=interop-secret AWS_REGION=us-east-1
	s3port=$(free_port)
	endpoint="http://127.0.0.1:$s3port"
	ROOT_ACCESS_KEY=$AWS_ACCESS_KEY_ID ROOT_SECRET_KEY=$AWS_SECRET_ACCESS_KEY "$server" --port "127.0.0.1:$s3port" --quiet \
		--keep-alive --health /health posix --disableotmp "$folder" >"$work/s3.log" 2>&1 &
	pids="$! $pids"
	wait_for "$endpoint/health" "$work/s3.log"
	printf 'iceberg:\n  vend_credentials: true\n  access_key_id: %s\n  secret_access_key: %s\n' \
		"$AWS_ACCESS_KEY_ID" "$AWS_SECRET_ACCESS_KEY" >"$folder/firn.yaml"
	serve "s3://firn-interop/some/prefix?endpoint=$endpoint&region=us-east-1&path_style=true" --config "$folder/firn.yaml"
	"$python" "$here/interop.py" --url "$url" --store "$folder/firn-interop/some/prefix" --s3 "s3://firn-interop/some/prefix" \
		--endpoint "$endpoint" --sample "$@"
	stop
}

install
firn=${FIRN_BIN:-}
if [ -z "$firn" ]; then
	firn="$work/firn"
	(cd "$root" && go build -o "$firn" ./cmd/firn)
fi
for kind in ${INTEROP_STORES:-file s3}; do
	echo "== $kind store"
	"run_$kind" "$@"
done
