#!/usr/bin/env python3
"""Every message of ray.proto, both ways, against Python classes made from the descriptors inside an installed Ray.

    roundtrip.py WIRE_ECHO RAY...       RAY as for bazel/dialect.py; SEED and COUNT in the environment change the run

A message with random contents is packed by Python's protobuf, unpacked and packed again by ours (wire_echo). Checked: what
our struct holds, field by field under its name, and that Python reads our bytes as the message it was, less the fields
that ray.proto does not have. Prints TAP, one line a release and message.
"""
import json
import math
import os
import random
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bazel"))
import dialect  # noqa: E402

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, struct_pb2, timestamp_pb2, any_pb2  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402

SEED, COUNT = int(os.environ.get("SEED", "1")), int(os.environ.get("COUNT", "25"))
D = descriptor_pb2.FieldDescriptorProto


def is_repeated(f):
    return f.is_repeated if hasattr(f, "is_repeated") else f.label == f.LABEL_REPEATED


def is_map(f):
    return f.type == D.TYPE_MESSAGE and f.message_type.GetOptions().map_entry


def pool_of(path):
    """A pool with Ray's files. What they import and is not embedded (opencensus) goes, with the messages that have fields of it; services too."""
    _, blobs = dialect.open_ray(path)
    files = {f.name: f for blob in blobs for f in dialect.embedded_files(blob)}
    pool = descriptor_pool.DescriptorPool()
    for module in (duration_pb2, struct_pb2, timestamp_pb2, any_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    done = set()

    def add(name):
        if name in done or name.startswith("google/protobuf/"):
            return
        done.add(name)
        file = descriptor_pb2.FileDescriptorProto.FromString(files[name].SerializeToString())
        absent = [n for n in file.dependency if n not in files and not n.startswith("google/protobuf/")]
        if absent:
            kept = [n for n in file.dependency if n not in absent]
            messages = [m for m in file.message_type if not any(f.type_name.startswith(".opencensus.") for f in m.field)]
            for field in ("dependency", "public_dependency", "weak_dependency", "message_type", "service"):
                file.ClearField(field)
            file.dependency.extend(kept)
            file.message_type.extend(messages)
        for needed in file.dependency:
            add(needed)
        pool.AddSerializedFile(file.SerializeToString())

    for name in files:
        add(name)
    return pool


class Random:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def value(self, f, depth):
        r = self.r
        ints = {D.TYPE_INT32: (-2**31, 2**31 - 1), D.TYPE_INT64: (-2**63, 2**63 - 1), D.TYPE_UINT32: (0, 2**32 - 1), D.TYPE_UINT64: (0, 2**64 - 1)}
        if f.type in ints:
            low, high = ints[f.type]
            return r.choice([0, 1, -1 if low else 1, low, high, r.randint(low, high), r.randint(0, 300)])
        if f.type == D.TYPE_BOOL:
            return r.random() < 0.5
        if f.type in (D.TYPE_DOUBLE, D.TYPE_FLOAT):
            return r.choice([0.0, -1.5, 1e-4, math.inf, r.uniform(-1e9, 1e9)])
        if f.type == D.TYPE_STRING:
            return "".join(r.choice("aZ 9é本\U0001f680\n\"\\") for _ in range(r.choice([0, 1, 5, 130])))
        if f.type == D.TYPE_BYTES:
            return r.randbytes(r.choice([0, 1, 28, 200]))
        if f.type == D.TYPE_ENUM:
            return r.choice([v.number for v in f.enum_type.values])
        raise AssertionError(f"{f.full_name}: type {f.type}")

    def fill(self, m, depth=0):
        for f in m.DESCRIPTOR.fields:
            if self.r.random() < 0.25:
                continue
            few = range(self.r.choice([0, 1, 2, 5]))
            if is_map(f):
                key, value = f.message_type.fields
                for _ in few:
                    k = self.value(key, depth)
                    if value.type == D.TYPE_MESSAGE:
                        self.fill(getattr(m, f.name)[k], depth + 1)
                    else:
                        getattr(m, f.name)[k] = self.value(value, depth)
            elif f.type == D.TYPE_MESSAGE:
                if depth > 6:
                    continue
                if is_repeated(f):
                    for _ in few:
                        self.fill(getattr(m, f.name).add(), depth + 1)
                else:
                    sub = getattr(m, f.name)
                    sub.SetInParent()
                    self.fill(sub, depth + 1)
            elif is_repeated(f):
                getattr(m, f.name).extend(self.value(f, depth) for _ in few)
            else:
                setattr(m, f.name, self.value(f, depth))


class Ours:
    """The wanted contents of our struct, and the wanted message after the round trip, from Ray's message."""

    def __init__(self, messages):
        self.messages = messages  # of dialect.our_messages

    def their_name(self, message, field, descriptor):
        for n in dialect.FIELD_NAMES.get(f"{message}.{field.name}", [field.name]):
            if n in descriptor.fields_by_name:
                return descriptor.fields_by_name[n]
        return None

    def scalar(self, f, v):
        if f.type == D.TYPE_STRING:
            return v.encode().hex()
        if f.type == D.TYPE_BYTES:
            return v.hex()
        if f.type in (D.TYPE_DOUBLE, D.TYPE_FLOAT):
            return ("float", v)
        return int(v)

    def entry(self, field, f, key, value):
        k, v = f.message_type.fields
        sub = next(o for o in self.messages[field.ref] if o.name == "value")
        return {"key": self.scalar(k, key), "value": self.one(sub, v, value)}

    def one(self, ours, f, v):
        if f.type != D.TYPE_MESSAGE:
            return self.scalar(f, v)
        return ("message", f.message_type, v) if ours.kind == "bytes" else self.dump(ours.ref, v)

    def dump(self, message, m):
        out = {}
        for o in self.messages[message]:
            f = self.their_name(message, o, m.DESCRIPTOR)
            if f is None:
                continue
            v = getattr(m, f.name)
            if is_map(f):
                if len(v):
                    out[o.name] = [self.entry(o, f, k, v[k]) for k in v]
            elif is_repeated(f):
                if len(v):
                    out[o.name] = [self.one(o, f, x) for x in v]
            elif f.has_presence:
                if m.HasField(f.name):
                    out[o.name] = self.one(o, f, v)
            elif v or (f.type in (D.TYPE_DOUBLE, D.TYPE_FLOAT) and math.copysign(1, v) < 0):
                out[o.name] = self.one(o, f, v)
        return out

    def strip(self, message, m):
        """Removes what ray.proto does not have."""
        kept = {}
        for o in self.messages[message]:
            f = self.their_name(message, o, m.DESCRIPTOR)
            if f is not None:
                kept[f.name] = o
        for f in m.DESCRIPTOR.fields:
            if f.name not in kept:
                m.ClearField(f.name)
            elif is_map(f):
                value = f.message_type.fields_by_name["value"]
                if value.type == D.TYPE_MESSAGE:
                    sub = next(o for o in self.messages[kept[f.name].ref] if o.name == "value")
                    for k in getattr(m, f.name):
                        self.strip(sub.ref, getattr(m, f.name)[k])
            elif f.type == D.TYPE_MESSAGE and kept[f.name].kind == "message":
                if is_repeated(f):
                    for sub in getattr(m, f.name):
                        self.strip(kept[f.name].ref, sub)
                elif m.HasField(f.name):
                    self.strip(kept[f.name].ref, getattr(m, f.name))


def differs(want, got, where):
    """None, or where and how what our struct holds is not what it should."""
    if isinstance(want, tuple) and want[0] == "float":
        return None if float.fromhex(got) == want[1] else f"{where}: {got} is not {want[1]}"
    if isinstance(want, tuple):
        m = type(want[2])()
        m.ParseFromString(bytes.fromhex(got))
        return None if m == want[2] else f"{where}: the opaque message changed"
    if isinstance(want, dict):
        if not isinstance(got, dict) or set(want) != set(got):
            return f"{where}: has {sorted(got) if isinstance(got, dict) else got}, not {sorted(want)}"
        return next(filter(None, (differs(want[k], got[k], f"{where}.{k}") for k in want)), None)
    if isinstance(want, list):
        if len(want) != len(got):
            return f"{where}: {len(got)} elements, not {len(want)}"
        if want and isinstance(want[0], dict) and set(want[0]) == {"key", "value"}:  # a map has no order
            key = lambda e: str(e.get("key", ""))
            want, got = sorted(want, key=key), sorted(got, key=key)
        return next(filter(None, (differs(w, g, f"{where}[{i}]") for i, (w, g) in enumerate(zip(want, got)))), None)
    return None if want == got else f"{where}: {got!r} is not {want!r}"


class Echo:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, release, message, data):
        self.process.stdin.write(f"{release} {message} {len(data)}\n".encode() + data)
        self.process.stdin.flush()
        n = int(self.process.stdout.readline() or -2)
        if n == -2:
            raise SystemExit(f"wire_echo ended at {release} {message}")
        if n < 0:
            return None, None
        packed = self.process.stdout.read(n)
        return packed, json.loads(self.process.stdout.read(int(self.process.stdout.readline())))


def check(echo, ours, release, message, cls, rand):
    for i in range(COUNT):
        m = cls()
        if i > 0:  # the first is empty
            rand.fill(m)
        packed, held = echo(release, message, m.SerializeToString())
        if packed is None:
            return f"case {i}: does not unpack: {m.SerializeToString().hex()}"
        fault = differs(ours.dump(message, m), held, message)
        if fault:
            return f"case {i}: {fault}"
        back = cls()
        back.ParseFromString(packed)
        ours.strip(message, m)
        if m != back:
            return f"case {i}: Python reads our bytes as {back}, not {m}"
    return None


def main():
    program, *paths = sys.argv[1:]
    messages, tables = dialect.our_messages(), dialect.our_tables()
    ours, echo, rand = Ours(messages), Echo(program), Random(SEED)
    number = failed = 0
    for path in paths:
        ray, pool = dialect.Ray.from_binaries(path), pool_of(path)
        table = dialect.Table(ray, messages, *tables)
        for message, full in table.names.items():
            if full is None or message.startswith("Map"):  # map entries are tried inside of the messages that have them
                continue
            fault = check(echo, ours, ray.release, message, GetMessageClass(pool.FindMessageTypeByName(full)), rand)
            number += 1
            failed += fault is not None
            print(f"{'not ' if fault else ''}ok {number} - {ray.release} {message} goes both ways" + (f"\n# {fault}" if fault else ""))
    print(f"1..{number}")
    return 1 if failed or number == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
