"""The tables that are written through Firn and read by other engines."""

import values

SCALARS = ["boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(18,4)", "decimal(38,10)", "date", "time",
           "timestamp", "timestamptz", "string", "uuid", "fixed(7)", "binary"]
NESTED = ["list<string>", "map<string,long>", "struct<a:int,b:string>", "list<struct<c:double,d:list<int>>>"]


def transforms(t):
    """Lists the partition transforms that Iceberg has for a type."""
    kind = values.parse(t)[0]
    out = ["identity(v)"]
    if kind not in ("boolean", "float", "double"):
        out.append("bucket(4,v)")
    if kind in ("int", "long", "decimal", "string", "binary"):
        out.append("truncate(3,v)")
    if kind in ("date", "timestamp", "timestamptz"):
        out += ["year(v)", "month(v)", "day(v)"]
    if kind in ("timestamp", "timestamptz"):
        out.append("hour(v)")
    return out


class Table:
    """A definition, and batches of rows in canonical form with the steps between them."""

    def __init__(self, name, columns, batches, steps=None, **definition):
        self.name, self.columns, self.batches, self.steps = name, columns, batches, steps or {}
        self.definition = definition
        self.final = columns  # columns at the end
        self.unfolded = False  # rows stay live until an engine loads the table

    @property
    def rows(self):
        return [row for batch in self.batches for row in batch]

    def body(self):
        columns = [{"name": n, "type": t, "required": n == "id"} for n, t in self.columns]
        return {"name": self.name, "columns": columns, **self.definition}


def make_rows(columns, first, count, *seed):
    rng = values.generator(*seed)
    return [{n: first + i if n == "id" else values.sample(t, first + i, rng) for n, t in columns} for i in range(count)]


def partitioned(rows=24):
    for t in SCALARS:
        for transform in transforms(t):
            name = "p_" + "".join(c if c.isalnum() else "_" for c in t + "_" + transform.split("(")[0])
            columns = [("id", "long"), ("v", t)]
            batches = [make_rows(columns, n * rows, rows, name, n) for n in range(2)]
            yield Table(name, columns, batches, partition_by=[transform])


def whole():
    columns = [("id", "long")] + [(f"c{i}", t) for i, t in enumerate(SCALARS + NESTED)]
    batches = [make_rows(columns, n * 100, 100, "all", n) for n in range(3)]
    yield Table("all_types", columns, batches)
    timeless = [c for c in columns if c[1] != "time"]
    yield Table("all_but_time", timeless, [[{n: row[n] for n, _ in timeless} for row in batch] for batch in batches])
    yield Table("all_but_time_v3", timeless, [make_rows(timeless, 0, 100, "v3")], properties={"iceberg.format_version": "3"})
    yield Table("all_types_delta", columns, batches, properties={"encoding": "delta"})
    yield Table("all_types_v3", columns, batches, properties={"iceberg.format_version": "3"})
    table = Table("buckets", columns, batches, buckets=4, bucket_key=["c12"])
    yield table
    table = Table("unfolded", columns, batches, buckets=2)
    table.unfolded = True
    yield table
    yield Table("empty", columns, [])
    odd = [("id", "long"), ("a-b", "string"), ("1x", "int"), ("order", "date")]
    yield Table("odd-names", odd, [make_rows(odd, 0, 60, "odd")], partition_by=["a-b", "bucket(3,1x)", "month(order)"])


def compacted():
    columns = [("id", "long"), ("region", "string"), ("at", "timestamptz")]
    batches = [make_rows(columns, n * 20, 20, "compacted", n) for n in range(8)]
    steps = {8: [("POST", "compact", {})]}
    yield Table("compacted", columns, batches, steps, partition_by=["month(at)"])
    yield Table("compacted_plain", columns, batches, steps, buckets=2)


def evolved():
    """Rows written before, between and after changes of the schema and the partitioning."""
    first = [("id", "long"), ("a", "int"), ("b", "string"), ("c", "float"), ("d", "decimal(9,2)"), ("gone", "string")]
    last = [("id", "long"), ("a", "long"), ("b2", "string"), ("c", "double"), ("d", "decimal(18,2)"), ("n", "string")]
    old = make_rows(first, 0, 50, "old")
    new = make_rows(last, 50, 50, "new")
    changes = [{"widen_column": {"name": "a", "type": "long"}}, {"rename_column": {"from": "b", "to": "b2"}},
               {"widen_column": {"name": "c", "type": "double"}}, {"widen_column": {"name": "d", "type": "decimal(18,2)"}},
               {"drop_column": {"name": "gone"}}, {"add_column": {"name": "n", "type": "string"}}]
    steps = {1: [("PATCH", "", {"changes": changes}), ("PATCH", "", {"changes": [{"set_partition_by": ["truncate(1,b2)"]}]})]}
    table = Table("evolved", first, [old, new], steps)
    table.final = last
    read = [{"id": r["id"], "a": r["a"], "b2": r["b"], "c": r["c"], "d": r["d"], "n": None} for r in old]
    table.expected = read + new
    yield table


def everything(sample=False):
    for table in [*whole(), *compacted(), *evolved(), *partitioned()]:
        if sample and table.name.startswith("p_") and "_string_" not in table.name and "_timestamp_" not in table.name:
            continue
        if not hasattr(table, "expected"):
            table.expected = table.rows
        yield table
