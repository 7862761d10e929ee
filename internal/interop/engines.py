"""The engines under test. Each reads a table by REST catalog and by path.

rows(name, columns) returns dicts of the engine's own values; count(name)
is what the engine answers to count(*); where(name, condition) counts the rows
that its own planner leaves and its filter keeps.
"""

import importlib.util
import os
import pathlib
import time

import chdb.session
import duckdb
import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

import values

DB = "interop"


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


class Engine:
    def skips(self, table):
        """Says why the engine cannot read a table; None when it can."""
        return None

    def same(self, t, got, want):
        """Compares canonical values of type t."""
        return got == want


class PyIceberg(Engine):
    def __init__(self, mode, site):
        self.name, self.mode, self.site = f"pyiceberg/{mode}", mode, site
        if mode == "rest":
            self.catalog = load_catalog("firn", type="rest", uri=site.catalog)

    def table(self, name):
        if self.mode == "rest":
            return self.catalog.load_table((DB, name))
        site = self.site
        properties = {"s3.endpoint": site.endpoint, "s3.access-key-id": site.key, "s3.secret-access-key": site.secret, "s3.region": "us-east-1"}
        return StaticTable.from_metadata(site.metadata(name), properties if site.s3 else {})

    def rows(self, name, columns):
        table = self.table(name).scan().to_arrow()
        return table.select([n for n, _ in columns]).to_pylist()

    def same(self, t, got, want):
        # PyIceberg 0.12 rebuilds lists of structs from their offsets alone, so
        # that NULL lists come back empty; the files have them as NULL.
        return got == want or t.startswith("list<struct") and want is None and got == []

    def count(self, name):
        return self.table(name).scan().count()

    def where(self, name, column, literal):
        return self.table(name).scan(row_filter=f"{quoted(column)} = {literal}").to_arrow().num_rows

    def nulls(self, name, column):
        return self.table(name).scan(row_filter=f"{quoted(column)} IS NULL").to_arrow().num_rows


class SQL(Engine):
    """What the engines that speak SQL share."""

    def rows(self, name, columns):
        return self.query(f"SELECT {', '.join(quoted(n) for n, _ in columns)} FROM {self.source(name)}").to_pylist()

    def scalar(self, sql):
        return self.query(sql).column(0).to_pylist()[0]

    def count(self, name):
        return self.scalar(f"SELECT count(*) AS answer FROM {self.source(name)}")

    def where(self, name, column, literal):
        return self.scalar(f"SELECT count(*) AS answer FROM {self.source(name)} WHERE {quoted(column)} = {literal}")

    def nulls(self, name, column):
        return self.scalar(f"SELECT count(*) AS answer FROM {self.source(name)} WHERE {quoted(column)} IS NULL")


class DuckDB(SQL):
    def __init__(self, mode, site):
        self.name, self.mode, self.site = f"duckdb/{mode}", mode, site
        self.con = duckdb.connect()
        self.con.execute("SET TimeZone = 'UTC'")
        for extension in ("avro", "httpfs", "iceberg"):
            folder = pathlib.Path(importlib.util.find_spec(f"duckdb_extension_{extension}").origin).parent
            path = next(folder.glob(f"extensions/*/{extension}.duckdb_extension"))
            self.con.execute(f"LOAD '{path}'")
        if mode == "path" and site.s3:
            self.con.execute(f"CREATE SECRET (TYPE s3, KEY_ID '{site.key}', SECRET '{site.secret}', REGION 'us-east-1', URL_STYLE 'path', "
                             f"USE_SSL false, ENDPOINT '{site.endpoint.removeprefix('http://')}')")
        if mode == "rest":
            self.con.execute(f"ATTACH 'firn' AS firn (TYPE iceberg, ENDPOINT '{site.catalog}', AUTHORIZATION_TYPE 'none')")

    def source(self, name):
        if self.mode == "rest":
            return f"firn.{DB}.{quoted(name)}"
        return f"iceberg_scan('{self.site.folder(name)}')"

    def query(self, sql):
        return self.con.execute(sql).to_arrow_table()


class ClickHouse(SQL):
    """chdb. By REST it attaches the catalog as a database; by path it reads the
    folder, which must lie inside the working directory."""

    sessions = {}

    def __init__(self, mode, site):
        self.name, self.mode, self.site = f"clickhouse/{mode}", mode, site
        os.chdir(site.store)
        self.session = self.sessions.setdefault("one", chdb.session.Session())
        for statement in ("SET allow_database_iceberg = 1", "SET output_format_arrow_string_as_string = 0",
                          "SET session_timezone = 'UTC'"):
            self.session.query(statement)
        if mode == "rest":
            self.session.query("DROP DATABASE IF EXISTS firn")
            # Local files take a format where S3 takes a key.
            access = f"'{site.key}', '{site.secret}'" if site.s3 else "'Parquet'"
            bucket = f", storage_endpoint = '{site.endpoint}/{site.s3.split('/')[2]}'" if site.s3 else ""
            self.session.query(f"CREATE DATABASE firn ENGINE = DataLakeCatalog('{site.catalog}/v1', {access}) "
                               f"SETTINGS catalog_type = 'rest', warehouse = 'firn', vended_credentials = false{bucket}")

    def source(self, name):
        if self.mode == "rest":
            return f"firn.`{DB}.{name}`"
        site = self.site
        if site.s3:
            return f"icebergS3('{site.endpoint}/{site.folder(name).removeprefix('s3://')}/', '{site.key}', '{site.secret}')"
        return f"icebergLocal('{site.relative(name)}/')"

    def skips(self, table):
        return {"p_decimal_38_10__truncate": "ClickHouse cannot truncate a 128-bit decimal",
                "p_uuid_identity": "ClickHouse reads uuid partition values as text"}.get(table.name)

    def same(self, t, got, want):
        if t == "time":  # read as whole seconds of the day, which canonical takes for microseconds
            return got == (want and values.clock(values.seconds(want)))
        return got == without_nulls(t, want)

    def query(self, sql):
        out = self.session.query(sql.replace('"', "`"), "ArrowStream")
        copied = bytes(bytearray(out.bytes()))  # the answer's own memory goes with it
        return pa.ipc.open_stream(copied).read_all()


def without_nulls(t, v):
    """What a value becomes in ClickHouse, whose lists, maps and structs are never NULL."""
    kind, args = values.parse(t)
    if kind == "list":
        return [without_nulls(args[0], x) for x in v or []]
    if kind == "map":
        return v or []
    if kind == "struct":
        return {name: without_nulls(typ, v and v[name]) for name, typ in args}
    return v


class Spark(SQL):
    """Spark with Iceberg's runtime jar, out of a file store. By path it reads the
    lake as a Hadoop catalog, which is the layout of the directories."""

    sessions = {}

    def __init__(self, mode, site):
        self.name, self.mode, self.site = f"spark/{mode}", mode, site
        if "one" not in self.sessions:
            self.sessions["one"] = self.start(site)
        self.session = self.sessions["one"]

    def start(self, site):
        os.environ["TZ"] = "UTC"
        time.tzset()
        from pyspark.sql import SparkSession
        settings = {
            "spark.jars": os.environ["INTEROP_SPARK_JAR"], "spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC",
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g", "spark.sql.ansi.doubleQuotedIdentifiers": "false",
            "spark.sql.catalog.rest": "org.apache.iceberg.spark.SparkCatalog", "spark.sql.catalog.rest.type": "rest",
            "spark.sql.catalog.rest.uri": site.catalog, "spark.sql.catalog.path": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.path.type": "hadoop", "spark.sql.catalog.path.warehouse": f"{site.store}/lake",
        }
        builder = SparkSession.builder.master("local[2]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        return session

    def skips(self, table):
        if any("time" == t for _, t in table.final):
            return "Spark has no time of day"
        if table.name == "p_fixed_7__identity":
            return "Iceberg's Java library reads fixed partition values as if they had a length"
        return None

    def source(self, name):
        table = name if self.mode == "rest" else self.site.local(name).name
        return f"{self.mode}.{DB}.{quoted(table)}"

    def query(self, sql):
        return Answer(self.session.sql(sql.replace('"', "`")).collect())


class Answer:
    """Spark's rows with the two methods that the others' Arrow tables have here."""

    def __init__(self, rows):
        self.lines = [row.asDict(recursive=True) for row in rows]

    def to_pylist(self):
        return self.lines

    def column(self, i):
        self.lines = [list(line.values())[i] for line in self.lines]
        return self


ENGINES = [PyIceberg, DuckDB, ClickHouse, Spark]
