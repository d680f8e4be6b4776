#!/usr/bin/env python3
"""Makes the table of one Ray release (raylet-c/wire/gen/) from the release itself, and tells what a release changed.

    dialect.py RAY              print what RAY changed against the nearest release that has a table
    dialect.py --write [RAY..]  write the listing of each RAY, then the tables of all releases that have a listing
    dialect.py --check [RAY..]  fail when a committed file differs from what --write would write

RAY is an installed `ray` package folder (or a folder above it, such as a virtual environment) or a .whl file. Ray's
Python package lacks some messages (sync stream, object manager), so the descriptors are read from where all of them are:
protobuf's C++ runtime keeps each .proto file as a serialized FileDescriptorProto inside the binaries. What was read is
kept as text (gen/ray_*.txt: all messages, enums and services); a table is made from that text and our own ray.proto and
methods.h. So after a change to ours, `dialect.py --write` alone is enough, without any Ray.

Needs the `protobuf` package (every Ray environment has it) and `protoc` for our own ray.proto.

What is checked, field by field: the wire type, the label, and for a sub-message that we type ourselves, that it is the
message we take it for. A difference is an error that names the field: then the struct in ray.proto must change, not a
number in a table.
"""
import argparse
import collections
import glob
import io
import os
import re
import subprocess
import sys
import tempfile
import zipfile

from google.protobuf import descriptor_pb2

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIRE = os.path.join(ROOT, "raylet-c", "wire")
GEN = os.path.join(WIRE, "gen")
COLUMNS = ["2.35.0", "2.60.0"]  # the columns of RC_METHODS in methods.h

# Where releases name one thing differently: our name -> Ray's names, the first that exists counts.
MESSAGE_NAMES = {"LeaseSpec": ["LeaseSpec", "TaskSpec"]}
FIELD_NAMES = {
    "LeaseSpec.lease_id": ["lease_id", "task_id"],
    "LeaseSpec.task_name": ["task_name", "name"],
    "Address.node_id": ["node_id", "raylet_id"],
    "WorkerDeltaData.node_id": ["node_id", "raylet_id"],
    "RequestWorkerLeaseRequest.lease_spec": ["lease_spec", "resource_spec"],
    "WorkerBacklogReport.lease_spec": ["lease_spec", "resource_spec"],
    "CancelWorkerLeaseRequest.lease_id": ["lease_id", "task_id"],
}
# Our prefix -> Ray's package; every other message lives in ray.rpc. A_B is also B nested in A.
PACKAGES = {"syncer_": "ray.rpc.syncer", "autoscaler_": "ray.rpc.autoscaler"}

# Packages whose messages no node exchanges with Ray: left out of the listings.
UNUSED_PACKAGES = ("ray.rpc.events", "ray.rpc.Export", "ray.serialization")

F = descriptor_pb2.FieldDescriptorProto
TYPE_NAMES = {v: k[5:].lower() for k, v in F.Type.items()}
# kind: a scalar's name, "enum", "message" or "map"; ref: the name of the enum or message, or a map's two types.
Field = collections.namedtuple("Field", "number name repeated kind ref packed")
SAME_ON_THE_WIRE = {("int32", "enum"), ("bytes", "message")}  # (ours, Ray's)


class Problem(Exception):
    pass


# ---- reading a release ----


class Ray:
    """One release: fields of all messages, values of all enums, all methods, by full name."""

    def __init__(self, release):
        self.release = release
        self.messages, self.enums, self.methods = {}, {}, set()

    @staticmethod
    def from_binaries(path):
        release, blobs = open_ray(path)
        ray, files = Ray(release), {}
        for blob in blobs:
            for f in embedded_files(blob):
                old = files.get(f.name)
                if old is None or f.ByteSize() > old.ByteSize():
                    files[f.name] = f
        if not files:
            raise Problem(f"{path}: no protobuf descriptor found in its binaries")
        messages = {}
        for f in files.values():
            ray._walk(f.package, f.message_type, f.enum_type, messages)
            for s in f.service:
                ray.methods |= {f"{f.package}.{s.name}/{m.name}" for m in s.method}
        for name, m in messages.items():
            if not m.options.map_entry:
                ray.messages[name] = [field_of(f, messages) for f in m.field]
        drop = lambda names: [n for n in names if n.startswith(UNUSED_PACKAGES)]
        for n in drop(ray.messages):
            del ray.messages[n]
        for n in drop(ray.enums):
            del ray.enums[n]
        ray.methods -= set(drop(ray.methods))
        return ray

    def _walk(self, prefix, messages, enums, ret):
        for e in enums:
            self.enums[f"{prefix}.{e.name}"] = {v.name: v.number for v in e.value}
        for m in messages:
            ret[f"{prefix}.{m.name}"] = m
            self._walk(f"{prefix}.{m.name}", m.nested_type, m.enum_type, ret)

    @staticmethod
    def from_listing(release):
        ray, kind, name = Ray(release), None, None
        for number, line in enumerate(open(listing_path(release)), 1):
            cells = line.split()
            try:
                if not line.startswith("\t"):
                    kind, name = cells
                    if kind == "message":
                        ray.messages[name] = []
                    elif kind == "enum":
                        ray.enums[name] = {}
                elif kind == "message":
                    ray.messages[name].append(parse_field(cells))
                elif kind == "enum":
                    ray.enums[name][cells[1]] = int(cells[0])
                else:
                    ray.methods.add(f"{name}/{cells[0]}")
            except (ValueError, IndexError):
                raise Problem(f"{listing_path(release)}:{number}: not a line of a listing; write it again from Ray {release}")
        return ray

    def listing(self):
        """Sorted by name: a message with its fields, an enum with its values, a service with its methods."""
        out = []
        for name, fields in sorted(self.messages.items()):
            out.append(f"message {name}")
            out += [f"\t{f.number} {f.name} {type_text(f)}" for f in sorted(fields)]
        for name, values in sorted(self.enums.items()):
            out.append(f"enum {name}")
            out += [f"\t{number} {value}" for value, number in sorted(values.items(), key=lambda v: (v[1], v[0]))]
        for service in sorted({m.split("/")[0] for m in self.methods}):
            out.append(f"service {service}")
            out += ["\t" + m.split("/")[1] for m in sorted(self.methods) if m.split("/")[0] == service]
        return "\n".join(out) + "\n"


def field_of(f, messages):
    """A Field from a FieldDescriptorProto; messages: to tell a map."""
    name, kind = f.type_name.lstrip("."), TYPE_NAMES[f.type]
    repeated = f.label == F.LABEL_REPEATED
    scalar = kind not in ("string", "bytes", "message")
    packed = repeated and scalar and (f.options.packed or not f.options.HasField("packed"))
    entry = messages.get(name) if kind == "message" else None
    if entry is not None and entry.options.map_entry:
        types = [type_text(field_of(e, messages)) for e in entry.field]
        return Field(f.number, f.name, False, "map", ",".join(types), False)
    return Field(f.number, f.name, repeated, kind, name, packed)


def type_text(f):
    text = f.kind + (":" + f.ref if f.ref else "")
    unpacked = f.repeated and f.kind not in ("string", "bytes", "message") and not f.packed
    return ("*" if f.repeated else "") + text + (" unpacked" if unpacked else "")


def parse_type(text):
    repeated, text = text.startswith("*"), text.lstrip("*")
    kind, _, ref = text.partition(":")
    return repeated, kind, ref


def parse_field(cells):
    repeated, kind, ref = parse_type(cells[2])
    packed = repeated and kind not in ("string", "bytes", "message") and cells[-1] != "unpacked"
    return Field(int(cells[0]), cells[1], repeated, kind, ref, packed)


def open_ray(path):
    """The release of a Ray package and the bytes of its binaries."""
    if path.endswith(".whl"):
        wheel = zipfile.ZipFile(path)
        names = {n for n in wheel.namelist() if n.startswith("ray/")}
        read = wheel.read
    else:
        base = next((d for d in [path, os.path.join(path, "ray")] + glob.glob(path + "/lib/python3*/site-packages/ray")
                     if os.path.isfile(os.path.join(d, "_version.py"))), None)
        if base is None:
            raise Problem(f"{path}: neither a ray package folder nor a folder above one")
        found = [p for p in glob.glob(base + "/*") + glob.glob(base + "/core/src/ray/*/*") if os.path.isfile(p)]
        names = {"ray/" + os.path.relpath(p, base) for p in found}
        read = lambda n: open(os.path.join(base, n[4:]), "rb").read()
    text = read("ray/_version.py").decode()
    match = re.search(r'^version\s*=\s*"([^"]+)"', text, re.M)
    if not match:
        raise Problem(f"{path}: no version in ray/_version.py")
    binary = re.compile(r"ray/(_raylet\.(.*\.)?so|core/src/ray/(raylet|gcs)/(raylet|gcs_server)(\.stock)?)$")
    chosen = sorted(n for n in names if binary.match(n))
    if not chosen:
        raise Problem(f"{path}: has none of Ray's binaries")
    return match.group(1), (read(n) for n in chosen)


def embedded_files(blob):
    """FileDescriptorProtos inside a binary. Each starts with field 1, the file's name; fields follow in rising order and
    the last is `syntax` (12)."""
    for m in re.finditer(rb"\n([\x01-\x7f])(src/ray/protobuf/[a-z_0-9/]+\.proto)", blob):
        if m.group(1)[0] != len(m.group(2)):
            continue
        end = descriptor_end(blob, m.start())
        if end is None:
            continue
        f = descriptor_pb2.FileDescriptorProto()
        try:
            f.ParseFromString(blob[m.start():end])
        except Exception:  # bytes that only look like one; protobuf's DecodeError differs between its versions
            continue
        yield f


def descriptor_end(blob, at):
    def varint(i):
        value = shift = 0
        while True:
            byte = blob[i]
            i += 1
            value |= (byte & 127) << shift
            if byte < 128:
                return value, i
            shift += 7
            if shift > 63:
                raise IndexError

    last = 0
    try:
        while True:
            tag, i = varint(at)
            field, wire = tag >> 3, tag & 7
            if field < last or field > 12 or wire not in (0, 2):
                return None
            last = field
            value, i = varint(i)
            at = i + value if wire == 2 else i
            if at > len(blob):
                return None
            if field == 12:
                return at
    except IndexError:
        return None


# ---- reading our side ----


def our_messages():
    """ray.proto as {name: [Field]}, in file order."""
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "set")
        done = subprocess.run(["protoc", "-I", WIRE, "--descriptor_set_out=" + out, "ray.proto"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem("protoc refuses ray.proto: " + done.stderr.strip())
        files = descriptor_pb2.FileDescriptorSet()
        files.ParseFromString(open(out, "rb").read())
    messages = {}
    for m in files.file[0].message_type:
        if [f.number for f in m.field] != list(range(1, len(m.field) + 1)):
            raise Problem(f"ray.proto: the fields of {m.name} are not numbered 1, 2, 3, ... in their order")
        fields = [field_of(f, {}) for f in m.field]
        # proto2: packed only when it says so
        messages[m.name] = [o._replace(ref=o.ref.split(".")[-1], packed=f.options.packed) for o, f in zip(fields, m.field)]
    return messages


def our_tables():
    """The X tables of methods.h: [(name, [path by column])], [(name, enum, [value names])]."""
    text = open(os.path.join(WIRE, "methods.h")).read()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S).replace("\\\n", " ")

    def rows(macro):
        body = re.search(r"#define %s\(X\)(.*?)\n" % macro, text, re.S).group(1)
        return [re.findall(r'"([^"]*)"|(\w+)', row) for row in re.findall(r"X\(([^)]*)\)", body)]

    methods, enums = [], []
    for row in rows("RC_METHODS"):
        cells = [a or b for a, b in row]
        if len(cells) != 1 + len(COLUMNS):
            raise Problem(f"methods.h: row {cells[0]} has {len(cells) - 1} columns, not {len(COLUMNS)}")
        methods.append((cells[0], cells[1:]))
    for row in rows("RC_ENUMS"):
        name, enum, values = [a or b for a, b in row]
        enums.append((name, enum, values.split("|")))
    return methods, enums


# ---- matching the two ----


class Table:
    """Our messages, methods and enum values with the numbers of one release."""

    def __init__(self, ray, ours, methods, enums):
        self.ray, self.ours, self.problems = ray, ours, []
        self.index = {name: i for i, name in enumerate(ours)}
        self.names = {name: self._find(name) for name in ours}  # ours -> Ray's full name, None: absent
        self.used_maps = set()
        self.fields = {name: self._fields(name) for name in ours}  # [(number, index, name, sub)] by number; None: absent
        for name in ours:
            if name.startswith("Map") and name not in self.used_maps:
                self.fields[name] = None
        self.methods = [(n, self._method(n, paths)) for n, paths in methods]
        self.enums = [(n, self._enum(enum, values)) for n, enum, values in enums]

    def check(self):
        if self.problems:
            raise Problem(f"Ray {self.ray.release} does not fit:\n  " + "\n  ".join(self.problems))
        return self

    def _find(self, name):
        for prefix, package in PACKAGES.items():
            if name.startswith(prefix):
                return self._there(f"{package}.{name[len(prefix):]}")
        for n in MESSAGE_NAMES.get(name, [name]):
            found = self._there(f"ray.rpc.{n}") or self._there("ray.rpc." + n.replace("_", ".", 1))
            if found:
                return found
        return None

    def _there(self, full):
        return full if full in self.ray.messages else None

    def _fields(self, message):
        if message.startswith("Map"):  # entries: checked where they are used
            return [(f.number, i, f.name, self._sub(f)) for i, f in enumerate(self.ours[message])]
        if self.names[message] is None:
            return None
        theirs = {f.name: f for f in self.ray.messages[self.names[message]]}
        rows = []
        for i, f in enumerate(self.ours[message]):
            where = f"{message}.{f.name}"
            for n in FIELD_NAMES.get(where, [f.name]):
                if n in theirs:
                    self._check(where, f, theirs[n])
                    rows.append((theirs[n].number, i, f.name, self._sub(f)))
                    break
        rows.sort()
        for a, b in zip(rows, rows[1:]):
            if a[0] == b[0]:
                self.problems.append(f"{message}: {a[2]} and {b[2]} both are number {a[0]}")
        return rows

    def _sub(self, f):
        return f.ref if f.kind == "message" else None

    def _check(self, where, our, their):
        bad = lambda text: self.problems.append(f"{where}: {text}")
        is_map = our.kind == "message" and our.ref.startswith("Map")
        if is_map != (their.kind == "map"):
            return bad("a map on one side only")
        if is_map:
            self.used_maps.add(our.ref)
            if not our.repeated:
                bad("a map must be repeated in ours")
            for f, number, name, text in zip(self.ours[our.ref], (1, 2), ("key", "value"), their.ref.split(",")):
                if (f.number, f.name) != (number, name):
                    bad(f"map entry {our.ref} is not key = 1, value = 2")
                self._check(f"{where}.{name}", f, Field(number, name, *parse_type(text), False))
            return None
        if our.repeated != their.repeated:
            return bad("repeated on one side only")
        if our.packed != their.packed:
            return bad("packed on one side only")
        if our.kind != their.kind and (our.kind, their.kind) not in SAME_ON_THE_WIRE:
            return bad(f"ours is {our.kind}, Ray's is {their.kind}")
        if our.kind == "message" and self.names[our.ref] != their.ref:
            bad(f"ours is a {our.ref} ({self.names[our.ref] or 'absent in this release'}), Ray's a {their.ref}")
        return None

    def _method(self, name, paths):
        there = lambda p: f"ray.rpc.{p}" in self.ray.methods
        if self.ray.release in COLUMNS:
            path = paths[COLUMNS.index(self.ray.release)]
            if path == "-":
                return None
            if not there(path):
                self.problems.append(f"methods.h: {name}: the release has no {path}")
            return path
        return next((p for p in reversed(paths) if p != "-" and there(p)), None)

    def _enum(self, enum, values):
        numbers = self.ray.enums.get(f"ray.rpc.{enum}", {})
        return next((numbers[v] for v in values if v in numbers), -1)


# ---- writing ----


def table_c(t):
    ident = t.ray.release.replace(".", "_")
    out = io.StringIO()
    w = lambda s: out.write(s + "\n")
    w(f"/* Numbers of Ray {t.ray.release}. Made by bazel/dialect.py from that release: do not edit. */")
    w('#include "raylet-c/wire/table.h"')
    w("")
    w("/* { number on the wire, place in our message, place of the sub-message in the list below } */")
    for i, message in enumerate(t.ours):
        rows = t.fields[message]
        if not rows:
            continue
        w(f"static const rc__field f{i}[] = {{ /* {message} */")
        for number, index, name, sub in rows:
            w(f"\t{{ {number}, {index}, {t.index[sub] if sub else 'RC__NO_SUB'} }}, /* {name} */")
        w("};")
    w("")
    w("static const rc__message messages[] = {")
    for i, message in enumerate(t.ours):
        symbol = "rw__" + c_name(message) + "__descriptor"
        rows = t.fields[message]
        state = f"f{i}, {len(rows)}, true" if rows else "NULL, 0, " + ("false" if rows is None else "true")
        w(f"\t{{ &{symbol}, {state} }},")
    w("};")
    w("")
    w("static const rc__path methods[RC_M_COUNT] = {")
    for name, path in t.methods:
        if path:
            w(f'\t[RC_M_{name}] = {{ "/ray.rpc.{path}", {len(path) + 9} }},')
    w("};")
    w("")
    w("static const int16_t enums[RC_V_COUNT] = {")
    for name, value in t.enums:
        w(f"\t[RC_V_{name}] = {value},")
    w("};")
    w("")
    w(f"const rc_dialect rc__dialect_{ident} = {{")
    w(f'\t"{t.ray.release}", messages, sizeof messages / sizeof *messages, methods, enums,')
    w("};")
    return out.getvalue()


def c_name(name):
    """protoc-c's lower-case form: Foo_BarBaz -> foo__bar_baz, CheckGCS -> check_gcs."""
    out = ""
    for i, c in enumerate(name):
        if c.isupper() and i and not name[i - 1].isupper():
            out += "_"
        out += c.lower()
    return out


def releases_h(releases):
    rows = " ".join(f"X({r.replace('.', '_')})" for r in releases)
    text = ", ".join(releases)
    return ("/* The releases that have a table. Made by bazel/dialect.py: do not edit. */\n"
            f"#define RC__RELEASES(X) {rows}\n#define RC__RELEASES_TEXT \"{text}\"\n")


def version_key(release):
    return [int(p) if p.isdigit() else 0 for p in release.split(".")]


def listing_path(release):
    return os.path.join(GEN, f"ray_{release.replace('.', '_')}.txt")


def known_releases():
    names = [os.path.basename(p)[4:-4].replace("_", ".") for p in glob.glob(GEN + "/ray_*.txt")]
    return sorted(names, key=version_key)


def outputs(paths):
    """All generated files, by name."""
    ours, (methods, enums) = our_messages(), our_tables()
    releases = {ray.release: ray for ray in map(Ray.from_binaries, paths)}
    files = {os.path.basename(listing_path(r)): ray.listing() for r, ray in releases.items()}
    releases.update({r: Ray.from_listing(r) for r in known_releases() if r not in releases})
    for release, ray in releases.items():
        files[f"dialect_{release.replace('.', '_')}.c"] = table_c(Table(ray, ours, methods, enums).check())
    files["releases.h"] = releases_h(sorted(releases, key=version_key))
    return files


# ---- telling what changed ----


def used_items(t, methods, enums):
    """What the release has in the messages, services and enums that we use: {(kind, owner, item): number or type}."""
    items = {}
    for full in {n for n in t.names.values() if n}:
        items["message", full, ""] = ""
        for f in t.ray.messages[full]:
            items["field", full, f.name] = f"{f.number} {type_text(f)}"
    services = {"ray.rpc." + p.split("/")[0] for _, paths in methods for p in paths if p != "-"}
    for m in t.ray.methods:
        if m.split("/")[0] in services:
            items["method", m, ""] = ""
    for full in {"ray.rpc." + enum for _, enum, _ in enums}:
        for value, number in t.ray.enums.get(full, {}).items():
            items["enum", full, value] = str(number)
    return items


def show_changes(path):
    ours, (methods, enums) = our_messages(), our_tables()
    ray, known = Ray.from_binaries(path), known_releases()
    if not known:
        raise Problem("no release has a table yet: use --write")
    want = version_key(ray.release)
    nearest = min(known, key=lambda r: [abs(a - b) for a, b in zip(version_key(r), want)])
    t = Table(ray, ours, methods, enums)
    old = used_items(Table(Ray.from_listing(nearest), ours, methods, enums), methods, enums)
    new = used_items(t, methods, enums)
    gone = {k[1] for k in old if k[0] == "message" and k not in new}
    fresh = {k[1] for k in new if k[0] == "message" and k not in old}
    changes = 0
    print(f"Ray {ray.release} against {nearest}:")
    for key in sorted(set(old) | set(new), key=lambda k: (k[1], k[0] == "field", k)):
        kind, name, item = key
        label = " ".join(filter(None, (kind, name, item)))
        if kind == "field" and (name in gone or name in fresh) or old.get(key) == new.get(key):
            continue
        if key not in new:
            print(f"  gone: {label}")
        elif key not in old:
            print(f"  new: {label} {new[key]}".rstrip())
        else:
            print(f"  moved: {label}: {old[key]} -> {new[key]}")
        changes += 1
    print(f"  {changes} changes in what we use" if changes else "  nothing changed in what we use")
    t.check()
    print("  our messages fit" + ("" if ray.release in known else ": --write makes its table"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write listings and tables")
    parser.add_argument("--check", action="store_true", help="compare with what is there instead")
    parser.add_argument("ray", nargs="*", metavar="RAY", help="a ray package folder, a folder above one, or a wheel")
    args = parser.parse_args()
    if not args.ray and not args.write and not args.check:
        parser.error("name a Ray package or wheel, or give --write or --check")
    try:
        if not args.write and not args.check:
            for path in args.ray:
                show_changes(path)
            return 0
        stale = 0
        os.makedirs(GEN, exist_ok=True)
        for name, text in outputs(args.ray).items():
            path = os.path.join(GEN, name)
            if args.write:
                with open(path, "w") as f:
                    f.write(text)
            elif not os.path.exists(path) or open(path).read() != text:
                print(f"{os.path.relpath(path, ROOT)} is not what bazel/dialect.py --write makes", file=sys.stderr)
                stale = 1
        return stale
    except Problem as e:
        print(f"dialect: {e}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
