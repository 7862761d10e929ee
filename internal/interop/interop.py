"""Writes tables through a running Firn and reads them with other engines.

Every table of tables.py is read by REST catalog and by path with each engine of
engines.py; rows, count(*) and two filters must equal what was written. Exits
with 1 on any difference.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import traceback
import urllib.parse

import requests

import engines
import tables
import values

DB = engines.DB
SHOWN = 40  # failures that are printed


class Firn:
    """The server under test, over HTTP."""

    def __init__(self, url):
        self.url = url
        self.http = requests.Session()

    def call(self, method, path, **kw):
        response = self.http.request(method, f"{self.url}/v1/databases{path}", timeout=120, **kw)
        if not response.ok:
            raise RuntimeError(f"{method} {path}: {response.status_code} {response.text[:500]}")
        return response.json() if response.content else None

    def table(self, name, rest=""):
        return f"/{DB}/tables/{urllib.parse.quote(name)}{rest}"

    def write(self, table):
        self.call("POST", f"/{DB}/tables", json=table.body())
        types = dict(table.columns)
        for i, batch in enumerate(table.batches, start=1):
            if batch:
                types.update(table.final if i > 1 else [])
                lines = (json.dumps({n: values.to_json(types[n], v) for n, v in row.items()}) for row in batch)
                self.call("POST", self.table(table.name, "/rows"), data="\n".join(lines).encode(),
                          headers={"Content-Type": "application/x-ndjson"})
            if not table.unfolded:
                self.call("POST", self.table(table.name, "/fold"), json={})
            for method, rest, body in table.steps.get(i, []):
                self.call(method, self.table(table.name, rest and "/" + rest), json=body)


class Site:
    """Where the engines find the catalog and the files. The store's objects are
    files too in the S3 server's folder, which is how tables are found by name."""

    def __init__(self, url, store, s3="", endpoint=""):
        self.catalog = f"{url}/iceberg"
        self.store = pathlib.Path(store).resolve()
        self.s3, self.endpoint = s3, endpoint
        self.key, self.secret = os.environ.get("AWS_ACCESS_KEY_ID", ""), os.environ.get("AWS_SECRET_ACCESS_KEY", "")

    def local(self, name):
        found = [p for p in (self.store / "lake" / DB).glob(f"{name}-*") if p.name[len(name) + 1:].isdigit()]
        if len(found) != 1:
            raise RuntimeError(f"table {name}: {len(found)} folders in the lake")
        return found[0]

    def relative(self, name):
        return self.local(name).relative_to(self.store)

    def folder(self, name):
        """Returns the table's location as engines spell it."""
        return f"{self.s3}/{self.relative(name)}" if self.s3 else str(self.local(name))

    def metadata(self, name):
        version = (self.local(name) / "metadata" / "version-hint.text").read_text().strip()
        return f"{self.folder(name)}/metadata/v{version}.metadata.json"


class Report:
    def __init__(self):
        self.checks, self.failures = 0, []

    def equal(self, what, got, want):
        self.checks += 1
        if got != want:
            self.failures.append(f"{what}: got {shorten(got)}, want {shorten(want)}")

    def attempt(self, what, fn, *args):
        try:
            fn(what, *args)
        except Exception as e:  # an engine's own errors have no common base
            self.failures.append(f"{what}: {type(e).__name__}: {shorten(str(e), 600)}")
            if "--trace" in sys.argv:
                traceback.print_exc()


def shorten(v, n=200):
    text = v if isinstance(v, str) else repr(v)
    return text if len(text) <= n else text[:n] + "…"


def literal(t, v):
    """Writes a canonical value as SQL that all engines read; None where there is no such form."""
    kind = values.parse(t)[0]
    if kind in ("int", "long"):
        return str(v)
    if kind in ("string", "date") and v.isascii() and "%" not in v:
        return "'" + v.replace("'", "''") + "'"
    return None


def check_rows(what, engine, table, report):
    want = sorted(([row[n] for n, _ in table.final] for row in table.expected), key=lambda r: r[0])
    got = [[values.canonical(t, row[n]) for n, t in table.final] for row in engine.rows(table.name, table.final)]
    got.sort(key=lambda r: r[0])
    report.equal(f"{what}: number of rows", len(got), len(want))
    for g, w in zip(got, want):
        wrong = [i for i, (_, t) in enumerate(table.final) if not engine.same(t, g[i], w[i])]
        if wrong:
            report.equal(f"{what}: row {w[0]}, column {table.final[wrong[0]]}", g[wrong[0]], w[wrong[0]])
            break


def check_counts(what, engine, table, report):
    report.equal(f"{what}: count(*)", engine.count(table.name), len(table.expected))
    column, t = [c for c in table.final if "<" not in c[1]][-1]
    present = [row[column] for row in table.expected if row[column] is not None]
    if not present:
        return
    report.equal(f"{what}: IS NULL", engine.nulls(table.name, column), len(table.expected) - len(present))
    probe = next(((v, text) for v in present[len(present) // 2:] if (text := literal(t, v)) is not None), None)
    if probe:
        report.equal(f"{what}: {column} = {probe[1]}", engine.where(table.name, column, probe[1]), present.count(probe[0]))


def check(engine, table, report):
    what = f"{engine.name} {table.name}"
    if reason := engine.skips(table):
        return reason
    report.attempt(what, check_rows, engine, table, report)
    report.attempt(what, check_counts, engine, table, report)
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="the agent, http://host:port")
    parser.add_argument("--store", required=True, help="the folder of its file:// store")
    parser.add_argument("--s3", default="", help="the s3:// URL of its store, when --store is the S3 server's folder")
    parser.add_argument("--endpoint", default="", help="the S3 endpoint")
    parser.add_argument("--sample", action="store_true", help="leave out most of the partitioned tables")
    parser.add_argument("--only", default="", help="tables whose name holds this text")
    parser.add_argument("--engines", default="pyiceberg,duckdb,clickhouse")
    parser.add_argument("--written", action="store_true", help="the tables were written by an earlier call")
    parser.add_argument("--trace", action="store_true")
    args = parser.parse_args()

    firn, site, report = Firn(args.url), Site(args.url, args.store, args.s3, args.endpoint), Report()
    wanted = [t for t in tables.everything(args.sample) if args.only in t.name]
    started = time.monotonic()
    if not args.written:
        firn.call("POST", "", json={"name": DB})
        for table in wanted:
            firn.write(table)
    print(f"wrote {len(wanted)} tables in {time.monotonic() - started:.1f} s")
    for mode in ("rest", "path"):
        for make in engines.ENGINES:
            if make.__name__.lower() not in args.engines.split(","):
                continue
            started, before, skipped = time.monotonic(), len(report.failures), []
            engine = make(mode, site)
            for table in wanted:
                if reason := check(engine, table, report):
                    skipped.append(f"{table.name} ({reason})")
            print(f"{engine.name}: {len(wanted) - len(skipped)} tables, {len(report.failures) - before} failures, {time.monotonic() - started:.1f} s"
                  + (f"; not read: {', '.join(skipped)}" if skipped else ""))
    for failure in report.failures[:SHOWN]:
        print("FAIL", failure)
    print(f"{report.checks} checks, {len(report.failures)} failures")
    sys.exit(1 if report.failures or not report.checks else 0)


if __name__ == "__main__":
    main()
