#!/usr/bin/env python3
"""Makes the table of one Ray release (raylet-c/wire/gen/) from the release itself, and tells what a release changed.

    dialect.py RAY            print what RAY changed against the nearest release that has a table
    dialect.py --write RAY..  write the tables
    dialect.py --check RAY..  fail when a committed table differs from what --write would write

RAY is an installed `ray` package folder (or a folder above it, such as a virtual environment) or a .whl file. Ray's
Python package lacks some messages (sync stream, object manager), so the descriptors are read from where all of them are:
protobuf's C++ runtime keeps each .proto file as a serialized FileDescriptorProto inside the binaries.

Needs the `protobuf` package (every Ray environment has it) and `protoc` for our own ray.proto.

What is checked, field by field: the wire type, the label, and for a sub-message that we type ourselves, that it is the
message we take it for. A difference is an error that names the field: then the struct in ray.proto must change, not a
number in a table.
"""
import argparse
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

F = descriptor_pb2.FieldDescriptorProto
TYPE_NAMES = {v: k[5:].lower() for k, v in F.Type.items()}
SAME_ON_THE_WIRE = {(F.TYPE_INT32, F.TYPE_ENUM), (F.TYPE_BYTES, F.TYPE_MESSAGE)}  # (ours, Ray's)


class Problem(Exception):
    pass


# ---- reading a release ----


class Ray:
    """One release: all messages, enums and services by full name."""

    def __init__(self, path):
        self.messages, self.enums, self.methods = {}, {}, {}
        self.release, blobs = open_ray(path)
        files = {}
        for blob in blobs:
            for f in embedded_files(blob):
                old = files.get(f.name)
                if old is None or f.ByteSize() > old.ByteSize():
                    files[f.name] = f
        if not files:
            raise Problem(f"{path}: no protobuf descriptor found in its binaries")
        for f in files.values():
            self._walk(f.package, f.message_type, f.enum_type)
            for s in f.service:
                for m in s.method:
                    self.methods[f"{f.package}.{s.name}/{m.name}"] = m

    def _walk(self, prefix, messages, enums):
        for e in enums:
            self.enums[f"{prefix}.{e.name}"] = e
        for m in messages:
            self.messages[f"{prefix}.{m.name}"] = m
            self._walk(f"{prefix}.{m.name}", m.nested_type, m.enum_type)


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
    """ray.proto as a list of DescriptorProto, in file order."""
    with tempfile.TemporaryDirectory() as tmp:
        out = os.path.join(tmp, "set")
        done = subprocess.run(["protoc", "-I", WIRE, "--descriptor_set_out=" + out, "ray.proto"], capture_output=True, text=True)
        if done.returncode != 0:
            raise Problem("protoc refuses ray.proto: " + done.stderr.strip())
        files = descriptor_pb2.FileDescriptorSet()
        files.ParseFromString(open(out, "rb").read())
    messages = list(files.file[0].message_type)
    for m in messages:
        if [f.number for f in m.field] != list(range(1, len(m.field) + 1)):
            raise Problem(f"ray.proto: the fields of {m.name} are not numbered 1, 2, 3, ... in their order")
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
        self.ray, self.problems = ray, []
        self.index = {m.name: i for i, m in enumerate(ours)}
        self.ours = ours
        self.names = {m.name: self._find(m.name) for m in ours}  # ours -> Ray's full name, None: absent
        self.used_maps = set()
        self.fields = {m.name: self._fields(m) for m in ours}    # [(number, index, name, sub)] by number; None: absent
        self.methods = [(n, self._method(n, paths)) for n, paths in methods]
        self.enums = [(n, self._enum(n, enum, values)) for n, enum, values in enums]
        for m in ours:
            if m.name.startswith("Map") and m.name not in self.used_maps:
                self.fields[m.name] = None
        if self.problems:
            raise Problem(f"Ray {ray.release} does not fit:\n  " + "\n  ".join(self.problems))

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

    def _fields(self, m):
        if m.name.startswith("Map"):
            return [(f.number, i, f.name, self._sub(f)) for i, f in enumerate(m.field)]
        if self.names[m.name] is None:
            return None
        theirs = {f.name: f for f in self.ray.messages[self.names[m.name]].field}
        rows = []
        for i, f in enumerate(m.field):
            where = f"{m.name}.{f.name}"
            for n in FIELD_NAMES.get(where, [f.name]):
                if n in theirs:
                    self._check(where, f, theirs[n])
                    rows.append((theirs[n].number, i, f.name, self._sub(f)))
                    break
        rows.sort()
        for a, b in zip(rows, rows[1:]):
            if a[0] == b[0]:
                self.problems.append(f"{m.name}: {a[2]} and {b[2]} both are number {a[0]}")
        return rows

    def _sub(self, f):
        return f.type_name.split(".")[-1] if f.type == F.TYPE_MESSAGE else None

    def _check(self, where, our, their):
        def bad(text):
            self.problems.append(f"{where}: {text}")

        if (our.label == F.LABEL_REPEATED) != (their.label == F.LABEL_REPEATED):
            return bad("repeated on one side only")
        packed = our.options.packed
        scalar = their.type not in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE)
        if our.label == F.LABEL_REPEATED and scalar and packed != (not their.options.HasField("packed") or their.options.packed):
            return bad("packed on one side only")
        if our.type != their.type and (our.type, their.type) not in SAME_ON_THE_WIRE:
            return bad(f"ours is {TYPE_NAMES[our.type]}, Ray's is {TYPE_NAMES[their.type]}")
        if our.type != F.TYPE_MESSAGE:
            return None
        sub, full = self._sub(our), their.type_name.lstrip(".")
        entry = self.ray.messages.get(full)
        if entry is None:
            return bad(f"its type {full} was not found in the release")
        if sub.startswith("Map") != entry.options.map_entry:
            return bad("a map on one side only")
        if not entry.options.map_entry:
            if self.names[sub] != full:
                bad(f"ours is a {sub} ({self.names[sub] or 'absent in this release'}), Ray's a {full}")
            return None
        self.used_maps.add(sub)
        for o, t in zip(self.ours[self.index[sub]].field, entry.field):
            if o.name != t.name or o.number != t.number:
                bad(f"map entry {sub} is not key = 1, value = 2")
            self._check(f"{where}.{o.name}", o, t)
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

    def _enum(self, name, enum, values):
        found = self.ray.enums.get(f"ray.rpc.{enum}")
        if found is None:
            return -1
        numbers = {v.name: v.number for v in found.value}
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
    for i, m in enumerate(t.ours):
        rows = t.fields[m.name]
        if not rows:
            continue
        w(f"static const rc__field f{i}[] = {{ /* {m.name} */")
        for number, index, name, sub in rows:
            w(f"\t{{ {number}, {index}, {t.index[sub] if sub else 'RC__NO_SUB'} }}, /* {name} */")
        w("};")
    w("")
    w("static const rc__message messages[] = {")
    for i, m in enumerate(t.ours):
        symbol = "rw__" + c_name(m.name) + "__descriptor"
        rows = t.fields[m.name]
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


def type_of(ray, f):
    if f.type not in (F.TYPE_MESSAGE, F.TYPE_ENUM):
        name = TYPE_NAMES[f.type]
    else:
        full = f.type_name.lstrip(".")
        name = full.replace("ray.rpc.", "")
        entry = ray.messages.get(full)
        if entry is not None and entry.options.map_entry:
            return f"map<{type_of(ray, entry.field[0])},{type_of(ray, entry.field[1])}>"
    return ("*" if f.label == F.LABEL_REPEATED else "") + name


def listing(t, methods, enums):
    """Everything that the release has in the messages, services and enums that we use: what a later release is compared
    with. Lines: kind, name, item, number or type."""
    lines = []
    for full in sorted({n for n in t.names.values() if n}):
        lines.append(f"message {full}")
        for f in t.ray.messages[full].field:
            lines.append(f"field {full} {f.name} {f.number} {type_of(t.ray, f)}")
    services = {p.split("/")[0] for _, paths in methods for p in paths if p != "-"}
    lines += [f"method {m}" for m in sorted(t.ray.methods) if m.split("/")[0][len("ray.rpc."):] in services]
    for full in sorted({"ray.rpc." + e for _, e, _ in enums}):
        for v in t.ray.enums[full].value if full in t.ray.enums else []:
            lines.append(f"enum {full} {v.name} {v.number}")
    return "\n".join(lines) + "\n"


def releases_h(releases):
    rows = " ".join(f"X({r.replace('.', '_')})" for r in releases)
    text = ", ".join(releases)
    return ("/* The releases that have a table. Made by bazel/dialect.py: do not edit. */\n"
            f"#define RC__RELEASES(X) {rows}\n#define RC__RELEASES_TEXT \"{text}\"\n")


def version_key(release):
    return [int(p) if p.isdigit() else 0 for p in release.split(".")]


def known_releases():
    names = [os.path.basename(p)[4:-4].replace("_", ".") for p in glob.glob(GEN + "/ray_*.txt")]
    return sorted(names, key=version_key)


def outputs(paths):
    """All generated files, by name."""
    ours, (methods, enums) = our_messages(), our_tables()
    files, releases = {}, set(known_releases())
    for path in paths:
        t = Table(Ray(path), ours, methods, enums)
        ident = t.ray.release.replace(".", "_")
        files[f"dialect_{ident}.c"] = table_c(t)
        files[f"ray_{ident}.txt"] = listing(t, methods, enums)
        releases.add(t.ray.release)
    files["releases.h"] = releases_h(sorted(releases, key=version_key))
    return files


# ---- the three commands ----


def show_changes(path):
    ours, (methods, enums) = our_messages(), our_tables()
    ray = Ray(path)
    known = known_releases()
    if not known:
        raise Problem("no release has a table yet: use --write")
    want = version_key(ray.release)
    nearest = min(known, key=lambda r: [abs(a - b) for a, b in zip(version_key(r), want)])
    t = Table.__new__(Table)
    problem = None
    try:
        t.__init__(ray, ours, methods, enums)
    except Problem as e:
        problem = e

    def items(text):
        found = {}
        for line in text.splitlines():
            kind, name, *rest = line.split()
            found[(kind, name, rest[0] if len(rest) > 0 else "")] = " ".join(rest[1:])
        return found

    old = items(open(f"{GEN}/ray_{nearest.replace('.', '_')}.txt").read())
    new = items(listing(t, methods, enums))
    print(f"Ray {ray.release} against {nearest}:")
    changes = 0
    gone = {k[1] for k in old if k[0] == "message" and k not in new}
    fresh = {k[1] for k in new if k[0] == "message" and k not in old}
    for key in sorted(set(old) | set(new), key=lambda k: (k[1], k[0] == "field", k)):
        kind, name, item = key
        label = f"{kind} {name}{' ' + item if item else ''}"
        if kind == "field" and (name in gone or name in fresh):
            continue
        if key not in new:
            print(f"  gone: {label}")
        elif key not in old:
            print(f"  new:  {label} {new[key]}".rstrip())
        elif old[key] != new[key]:
            print(f"  moved: {label}: {old[key]} -> {new[key]}")
        else:
            continue
        changes += 1
    print(f"  {changes} changes in what we use" if changes else "  nothing changed in what we use")
    if problem:
        raise problem
    print("  our messages fit: --write makes its table")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("ray", nargs="+", metavar="RAY")
    args = parser.parse_args()
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
