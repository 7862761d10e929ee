"""Values in one canonical form, so that every engine's answer can be compared.

Canonical forms: bool, int and str as they are; float as its 64-bit pattern in
hex; decimal as text with its scale; date, time and timestamps as ISO text with
six digits of a second (timestamptz in UTC); uuid as text; fixed and binary as
hex; list as list; map as a sorted list of pairs; struct as dict; NULL as None.
"""

import base64
import datetime as dt
import decimal
import random
import re
import struct
import uuid

EPOCH = dt.datetime(1970, 1, 1)


def split_args(text):
    """Splits on commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += c in "<(" and 1 or c in ">)" and -1 or 0
        if c == "," and depth == 0:
            parts.append(text[start:i])
            start = i + 1
    return parts + [text[start:]]


def parse(t):
    """Returns (kind, arguments): arguments are ints, types or (name, type) pairs."""
    t = t.strip()
    if m := re.fullmatch(r"(\w+)\(([\d, ]+)\)", t):
        return m[1], [int(x) for x in m[2].split(",")]
    if m := re.fullmatch(r"(list|map|struct)<(.*)>", t):
        args = split_args(m[2])
        if m[1] == "struct":
            args = [tuple(a.split(":", 1)) for a in args]
        return m[1], args
    return t, []


def canonical(t, v):
    """Brings a value that an engine returned for type t into canonical form."""
    kind, args = parse(t)
    if v is None:
        return None
    if kind == "boolean":
        return bool(v)
    if kind in ("int", "long"):
        return int(v)
    if kind in ("float", "double"):
        v = float(v)
        return "nan" if v != v else struct.pack(">d", v).hex()
    if kind == "decimal":
        return str(decimal.Decimal(v).quantize(decimal.Decimal(1).scaleb(-args[1]), context=decimal.Context(prec=40)))
    if kind == "date":
        return (v if isinstance(v, dt.date) else dt.date.fromisoformat(str(v))).isoformat()[:10]
    if kind == "time":
        return clock(v)
    if kind in ("timestamp", "timestamptz"):
        return moment(v)
    if kind == "uuid":
        return str(v if isinstance(v, uuid.UUID) else uuid.UUID(bytes=bytes(v)) if isinstance(v, bytes) else uuid.UUID(str(v)))
    if kind in ("fixed", "binary"):
        return bytes(v).hex() if not isinstance(v, str) else v.encode("latin-1").hex()
    if kind == "list":
        return [canonical(args[0], x) for x in v]
    if kind == "map":
        pairs = v.items() if isinstance(v, dict) else v
        return sorted([canonical(args[0], k), canonical(args[1], x)] for k, x in pairs)
    if kind == "struct":
        return {name: canonical(typ, v[name]) for name, typ in args}
    return v.decode() if isinstance(v, bytes) else v


def clock(v):
    if isinstance(v, dt.timedelta):
        v = (EPOCH + v).time()
    if isinstance(v, int):  # microseconds of the day
        v = (EPOCH + dt.timedelta(microseconds=v)).time()
    if isinstance(v, str):
        v = dt.time.fromisoformat(v)
    return v.isoformat("microseconds")


def seconds(text):
    """Returns the seconds of a canonical time."""
    t = dt.time.fromisoformat(text)
    return t.hour * 3600 + t.minute * 60 + t.second


def moment(v):
    if isinstance(v, str):
        v = dt.datetime.fromisoformat(v)
    if v.tzinfo is not None:
        v = v.astimezone(dt.timezone.utc).replace(tzinfo=None)
    return v.isoformat("T", "microseconds")


def to_json(t, v):
    """Turns a canonical value into the rows API's JSON."""
    kind, args = parse(t)
    if v is None:
        return None
    if kind in ("float", "double"):
        if v == "nan":
            return "NaN"
        x = struct.unpack(">d", bytes.fromhex(v))[0]
        return x if x == x and abs(x) != float("inf") else "Infinity" if x > 0 else "-Infinity"
    if kind == "timestamptz":
        return v + "Z"
    if kind in ("fixed", "binary"):
        return base64.b64encode(bytes.fromhex(v)).decode()
    if kind == "list":
        return [to_json(args[0], x) for x in v]
    if kind == "map":
        return {k: to_json(args[1], x) for k, x in v}
    if kind == "struct":
        return {name: to_json(typ, v[name]) for name, typ in args}
    return v


# Boundary values, within what every engine under test can hold: ClickHouse has
# dates from 1900 to 2299.
EDGES = {
    "boolean": [False, True],
    "int": [-(2**31), -1, 0, 1, 2**31 - 1],
    "long": [-(2**63), -1, 0, 1, 2**53 + 1, 2**63 - 1],
    "date": ["1900-01-01", "1969-12-31", "1970-01-01", "2000-02-29", "2299-12-31"],
    "time": ["00:00:00.000000", "00:00:00.000001", "12:34:56.789012", "23:59:59.999999"],
    "timestamp": ["1900-01-01T00:00:00.000000", "1969-12-31T23:59:59.999999", "1970-01-01T00:00:00.000000",
                  "2024-02-29T12:34:56.789012", "2262-04-11T23:47:16.854775"],
    "string": ["", "a", "abcé", "ΑΒΓ𝄞", "%20/=?#", "null", "x" * 40],
}
EDGES["timestamptz"] = EDGES["timestamp"]


def sample(t, i, rng):
    """Returns a canonical value of type t: edges first, then random ones, a sixth NULL."""
    kind, args = parse(t)
    edges = EDGES.get(kind, [])
    if i < len(edges):
        return edges[i]
    if rng.randrange(6) == 0:
        return None
    if kind in ("float", "double"):
        return sample_float(kind, i, rng)
    if kind == "decimal":
        precision, scale = args
        limit = 10**precision - 1
        n = [limit, -limit, 0, 1, -1][i] if i < 5 else rng.randint(-limit, limit)
        return canonical(t, decimal.Decimal(n).scaleb(-scale, context=decimal.Context(prec=60)))
    if kind == "uuid":
        return str(uuid.UUID(int=rng.getrandbits(128)))
    if kind == "fixed":
        return rng.randbytes(args[0]).hex()
    if kind == "binary":
        return rng.randbytes(rng.randrange(12)).hex()
    if kind == "list":
        return [sample(args[0], 99, rng) for _ in range(rng.randrange(4))]
    if kind == "map":
        return sorted([f"k{n}", sample(args[1], 99, rng)] for n in range(rng.randrange(3)))
    if kind == "struct":
        return {name: sample(typ, 99, rng) for name, typ in args}
    return sample_scalar(kind, edges, rng)


def sample_float(kind, i, rng):
    x = [0.0, -1.5, float("inf"), float("-inf"), float("nan")][i] if i < 5 else rng.choice([rng.gauss(0, 1), rng.gauss(0, 1e30), float(rng.randrange(9))])
    if kind == "float":
        x = struct.unpack(">f", struct.pack(">f", x))[0]
    return canonical(kind, x)


def sample_scalar(kind, edges, rng):
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "int":
        return rng.choice([rng.randint(-50, 50), rng.randint(-(2**31), 2**31 - 1)])
    if kind == "long":
        return rng.choice([rng.randint(-50, 50), rng.randint(-(2**63), 2**63 - 1)])
    if kind == "string":
        return rng.choice(edges) + rng.choice("abcdeé") * rng.randrange(6)
    day = dt.date(1900, 1, 1) + dt.timedelta(days=rng.randrange(140000))
    if rng.random() < 0.7:
        day = dt.date(2024, 1, 1) + dt.timedelta(days=rng.randrange(60))
    if kind == "date":
        return day.isoformat()
    time = (EPOCH + dt.timedelta(microseconds=rng.randrange(86_400_000_000))).time().isoformat("microseconds")
    return time if kind == "time" else f"{min(day, dt.date(2262, 4, 10)).isoformat()}T{time}"


def generator(*seed):
    return random.Random(repr(seed))
