#!/usr/bin/env python3
"""A hostile or broken peer at every door of the node: both sockets, the gRPC port, the start options, the descriptors.

Each attack must be answered or closed in bounded time, with one line in the log that names what is wrong; the daemon goes on,
runs a task afterwards, has no more descriptors than before, and ends cleanly. With a sanitizer build of the daemon in place its
reports fail the scenario.
"""
import collections
import contextlib
import math
import os
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import time

import _field
from _field import expect, note, read, wait_for

COOKIE = 0x5241590000000000
SANITIZER = re.compile(r"AddressSanitizer|LeakSanitizer|ThreadSanitizer|runtime error:")
# For a sanitizer build: `ray start` must not preload an allocator.
SANITIZED = {"ASAN_OPTIONS": "detect_leaks=1:quarantine_size_mb=8", "RAY_JEMALLOC_LIB_PATH": ""}
MEMORY_GROWTH = 400 << 20  # of a daemon under a sanitizer, which keeps what was freed for a while

DRIVER = """
@ray.remote(num_cpus=1, resources={"under_test": 0.001}, max_retries=0)
def f(x):
    return len(x)
for n in range(1, 1000):
    while not os.path.exists(f"FOLDER/go.{n}"):
        time.sleep(0.05)
    assert ray.get(f.remote(b"x" * 2_000_000), timeout=60) == 2_000_000
    print(f"done {n}.", flush=True)
"""


# -- messages ---------------------------------------------------------------------------------------
def frame(kind, body=b"", cookie=COOKIE, length=None):
    return struct.pack("<qqq", cookie, kind, len(body) if length is None else length) + body


def flat(*slots):
    """A flatbuffers table: None is absent, ("i" | "q" | "b", n) a number, bytes a text, a list of bytes a vector of texts."""
    out = bytearray(struct.pack("<IHH", 0, 4 + 2 * len(slots), 0) + bytes(2 * len(slots)))
    out += bytes(-len(out) % 8)
    table, later = len(out), []
    struct.pack_into("<I", out, 0, table)
    out += struct.pack("<i", table - 4)
    for i, value in enumerate(slots):
        if value is None:
            continue
        out += bytes(-len(out) % 8)
        struct.pack_into("<H", out, 8 + 2 * i, len(out) - table)
        if isinstance(value, tuple):
            out += struct.pack("<" + value[0], value[1])
        else:
            later.append((len(out), value))
            out += bytes(4)
    struct.pack_into("<H", out, 6, len(out) - table)

    def text(place, value):
        out.extend(bytes(-len(out) % 4))
        struct.pack_into("<I", out, place, len(out) - place)
        out.extend(struct.pack("<I", len(value)) + value + b"\0")

    for place, value in later:
        if isinstance(value, bytes):
            text(place, value)
            continue
        out += bytes(-len(out) % 4)
        struct.pack_into("<I", out, place, len(out) - place)
        at = len(out) + 4
        out += struct.pack("<I", len(value)) + bytes(4 * len(value))
        for i, element in enumerate(value):
            text(at + 4 * i, element)
    return bytes(out)


def repeated(slot, n, text, before=()):
    """A table whose vector of texts has one and the same text n times: few bytes for many elements."""
    body = bytearray(flat(*before, *[None] * (slot - len(before)), [b""] * 1))
    vector = len(body) - 8 - (len(body) - 8) % 4
    vtable_entry = struct.unpack_from("<H", body, 8 + 2 * slot)[0]
    table = struct.unpack_from("<I", body, 0)[0]
    place = table + vtable_entry
    vector = place + struct.unpack_from("<I", body, place)[0]
    del body[vector:]
    body += struct.pack("<I", n)
    end = vector + 4 + 4 * n
    body += b"".join(struct.pack("<I", end - (vector + 4 + 4 * i)) for i in range(n))
    return bytes(body + struct.pack("<I", len(text)) + text + b"\0")


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def pb(**fields):
    """A protobuf message: f1=b"text", f5=number."""
    out = b""
    for name, value in fields.items():
        n = int(name[1:])
        out += varint(n << 3 | 2) + varint(len(value)) + value if isinstance(value, bytes) else varint(n << 3) + varint(value)
    return out


# -- the node under attack ----------------------------------------------------------------------------
class Target:
    """A node that runs tasks, and what it had before the attack."""

    def __init__(self, field, **how):
        self.field = field
        field.start_head(env=SANITIZED)
        self.node = field.start_node(env=SANITIZED, **how)
        self.v235 = field.release == "2.35.0"
        self.pid = self.node.raylet
        words = read(f"/proc/{self.pid}/cmdline").split("\0")
        self.argv = [w for w in words if w]
        self.options = dict(w.lstrip("-").split("=", 1) for w in self.argv if w.startswith("--") and "=" in w)
        self.raylet_socket, self.plasma_socket = self.options["raylet_socket_name"], self.options["store_socket_name"]
        self.port = self.node.record.get("node_manager_port") or listening(self.pid, self.node.ip)
        self.checks, self.logged = 0, None
        self.driver = field.driver(DRIVER.replace("FOLDER", field.temp_dir))
        self.runs_a_task()
        self.descriptors, self.memory = self.count(), self.rss()
        self.logged = field.log_sizes()

    def runs_a_task(self):
        self.checks += 1
        n = self.checks
        open(os.path.join(self.field.temp_dir, f"go.{n}"), "w").close()
        wait_for(lambda: f"done {n}." in read(self.driver.log) or self.driver.poll() is not None, 90, "the node runs a task")
        expect(f"done {n}." in read(self.driver.log), f"the node did not run a task: {read(self.driver.log)[-800:]}\n{self.log()[-3000:]}")

    def count(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def open_now(self):
        """What the daemon's descriptors are: files, and sockets with their addresses."""
        sockets = {}
        for name in ("unix", "tcp", "tcp6"):
            for line in read(f"/proc/{self.pid}/net/{name}").splitlines()[1:]:
                words = line.split()
                inode, text = (words[6], " ".join(words[7:])) if name == "unix" else (words[9], f"{name} {words[1]} {words[2]} {words[3]}")
                sockets[inode] = os.path.basename(text) or "unix, without a name"
        found = collections.Counter()
        for n in os.listdir(f"/proc/{self.pid}/fd"):
            with contextlib.suppress(OSError):
                to = os.readlink(f"/proc/{self.pid}/fd/{n}")
                found[sockets.get(to[8:-1], "socket") if to.startswith("socket:") else re.sub(r"\[\d+\]|.*/", "", to)] += 1
        return dict(found)

    def rss(self):
        return int(read(f"/proc/{self.pid}/statm").split()[1]) * 4096

    def log(self):
        return self.field.daemon_log(self.logged)

    def alive(self, what):
        expect(_field._proc.look(self.pid), f"the daemon died of: {what}\n{self.log()[-3000:]}")

    def said(self, text, what, most=None):
        """The log has a line with these words; at most `most` of them."""
        found = wait_for(lambda: [line for line in self.log().splitlines() if re.search(text, line)], 10,
                         f"the log names {what} ({text}); it has: {self.log()[-1500:]}")
        if most:
            expect(len(found) <= most, f"{what}: {len(found)} lines in the log, wanted {most}: {found[:3]}")

    def intact(self, spare=12):
        """What must hold after an attack."""
        self.alive("the attack")
        self.runs_a_task()
        # Idle workers are kept, and may have been on their way when the first count was taken: each has its connections.
        limit = lambda: self.descriptors + spare + 6 * len(self.node.of("worker"))  # noqa: E731
        try:
            wait_for(lambda: self.count() <= limit(), 20, "descriptors go back")
        except _field.Wrong as e:
            raise _field.Wrong(f"{e}: {self.count()} are open, {self.descriptors} were before, with {len(self.node.of('worker'))} workers: "
                               f"{self.open_now()}") from None
        grown = self.rss() - self.memory
        note(f"memory grew by {grown >> 20} MiB, log by {len(self.log())} bytes")
        expect(grown < MEMORY_GROWTH, f"the daemon's memory grew by {grown >> 20} MiB")
        found = SANITIZER.search(self.log())
        expect(not found, f"sanitizer: {self.log()[found.start() - 200 if found else 0:][:4000]}")

    def ends(self):
        """The daemon ends when told to, reports nothing, and leaves no process and no memory file."""
        everything = [p for p in self.node.processes() if p.pid != self.node.process.pid]
        os.kill(self.driver.pid, signal.SIGKILL)
        os.kill(self.pid, signal.SIGTERM)
        wait_for(lambda: not _field._proc.look(self.pid), 40, "the daemon ends")
        aside = {p.pid for p in self.node.of("log_monitor")}
        left = _field._proc.wait_gone([p for p in everything if p.pid not in aside], 10)
        expect(not left, f"left after the daemon: {_field.describe(left)}")
        for path in (self.raylet_socket, self.plasma_socket):
            expect(not os.path.exists(path), f"{path} is left")
        found = SANITIZER.search(self.log())
        expect(not found, f"sanitizer at the end: {self.log()[found.start() - 200 if found else 0:][:4000]}")

    # -- its doors
    def connect(self, path):
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(20)

        def connected():
            try:
                s.connect(path)
            except BlockingIOError:  # more wait to be accepted than the kernel keeps
                return False
            return True

        wait_for(connected, 20, f"{path} takes a connection", 0.01)
        return s

    def register(self, worker_id=None, kind=1, pid=None):
        """A driver of our own making."""
        worker_id = worker_id or os.urandom(28)
        token = [("q", -1)] if self.v235 else []
        body = flat(("i", kind), worker_id, ("q", os.getpid() if pid is None else pid), *token, os.urandom(4), ("i", 0), ("i", 0),
                    b"127.0.0.1", ("i", 0), b"")
        return frame(4 if self.v235 else 1, body)

    def kind(self, name):
        types = {"announce": (6, 3), "disconnect": (8, 5), "get": (10, 7), "cancel": (11, 8), "blocked": (12, 9), "unblocked": (13, 10),
                 "wait": (14, 11), "args": (16, 13), "error": (17, 14), "free": (18, 15), "ready": (20, 16), "actor": (2, 0)}
        return types[name][0 if self.v235 else 1]

    def send(self, path, *frames):
        """Sends all; returns what the node answered before it closed, or None when it did not close."""
        with self.connect(path) as s:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for f in frames:
                    s.sendall(f)
            return drain(s)


def listening(pid, ip):
    """The port of the daemon at this address: that of the kernel's table."""
    packed = "".join(f"{int(b):02X}" for b in reversed(ip.split(".")))
    inodes = {os.readlink(f"/proc/{pid}/fd/{n}")[8:-1] for n in os.listdir(f"/proc/{pid}/fd")
              if os.readlink(f"/proc/{pid}/fd/{n}").startswith("socket:")}
    for table in ("tcp", "tcp6"):
        for line in read(f"/proc/{pid}/net/{table}").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and words[9] in inodes and (words[1].split(":")[0][-8:] in (packed, "00000000")):
                return int(words[1].split(":")[1], 16)
    raise _field.Wrong("the daemon listens on no port")


def drain(s, seconds=20):
    got = bytearray()
    s.settimeout(seconds)
    try:
        while True:
            data = s.recv(1 << 20)
            if not data:
                return got
            got += data
    except ConnectionResetError:
        return got
    except socket.timeout:
        return None


# -- both sockets -------------------------------------------------------------------------------------
def both_sockets(field):
    """Frames that are malformed, oversized, unknown, in the wrong order or of the other release."""
    t = Target(field)
    rng = random.Random(7)
    wait_v = t.kind("wait")
    object_id = os.urandom(28)
    for path, name in ((t.raylet_socket, "raylet"), (t.plasma_socket, "plasma")):
        for what, data, words in (
            ("another cookie", frame(1, cookie=0x1234), "bad cookie 0x0000000000001234"),
            ("a negative length", frame(1, length=-5), "of -5 bytes"),
            ("an oversized length", frame(1, length=1 << 40), "of 1099511627776 bytes"),
            ("an unknown type", frame(7777), "type 7777"),
            ("a negative type", frame(-3), "type -3"),
        ):
            before = t.field.log_sizes()
            expect(t.send(path, data) is not None, f"{name}: {what}: the connection is still open")
            t.alive(what)
            wait_for(lambda: words in t.field.daemon_log(before), 10, f"{name}: the log names {what} ({words}): {t.field.daemon_log(before)}")
            lines = t.field.daemon_log(before).count(words)
            expect(lines == 1, f"{name}: {what}: {lines} lines in the log")
        with t.connect(path) as s:  # a message that ends in the middle
            s.sendall(frame(1, b"half", length=1000))
    raylet, plasma = t.raylet_socket, t.plasma_socket
    announce = frame(t.kind("announce"), flat(("i", 4711), b"x"))
    order = [
        ("a get before the registration", [frame(t.kind("get"), flat([object_id]))], "not registered"),
        ("an announcement before the registration", [announce], "not registered"),
        ("a body that is no table", [frame(4 if t.v235 else 1, b"\xff" * 40)], "root table"),
        ("no body", [frame(4 if t.v235 else 1)], "too few for a table"),
        ("a registration of the other release", [frame(1 if t.v235 else 4, flat(("i", 1), os.urandom(28)))], "RegisterClient|one of Ray|registered|IDs"),
        ("a worker that the node has not started", [t.register(kind=0)], "was not started by this node"),
        ("a registration twice", [t.register(), t.register()], "registered twice"),
        ("an id of 3 bytes", [t.register(), frame(wait_v, flat([b"abc"], None, ("i", 1), ("q", -1)))], "id of 3 bytes"),
        ("owners that do not fit", [t.register(), frame(t.kind("get"), flat([object_id], [b"x" * 40, b"y"]))], "owner|objects"),
        ("port 0", [t.register(), frame(t.kind("announce"), flat(("i", 0), b""))], "port 0"),
        ("port 70000", [t.register(), frame(t.kind("announce"), flat(("i", 70000), b""))], "70000"),
    ]
    for what, frames, words in order:
        before = t.field.log_sizes()
        expect(t.send(raylet, *frames) is not None, f"{what}: the connection is still open")
        t.alive(what)
        wait_for(lambda: re.search(words, t.field.daemon_log(before)), 10, f"the log names {what} ({words}): {t.field.daemon_log(before)}")
    # Allowed, if absurd: endless waits, negative counts, releases and cancels of nothing, calls to free what is not there.
    with t.connect(raylet) as s:
        s.sendall(t.register())
        many = [os.urandom(28) for _ in range(3000)]
        for body in (flat(many, None, ("i", -7), ("q", 1 << 62)), flat(many, None, ("i", 1 << 30), ("q", -1 << 63)),
                     flat([], None, ("i", 5), ("q", 1)), flat([object_id] * 50, None, ("i", 50), ("q", 10)), flat(None)):
            s.sendall(frame(wait_v, body))
        s.sendall(frame(t.kind("cancel"), flat(("q", -1))) + frame(t.kind("cancel"), flat(("q", 1 << 62))))
        s.sendall(frame(t.kind("unblocked"), flat()) + frame(t.kind("blocked"), flat(("b", 1))) * 3 + frame(t.kind("unblocked"), flat()) * 3)
        s.sendall(frame(t.kind("free"), flat(("b", 0), many)) + frame(t.kind("args"), flat(many, None, ("i", -1) if t.v235 else b"\1" * 900, ("i", -9))))
        s.sendall(frame(t.kind("ready"), flat(object_id)) + frame(t.kind("actor"), b"") + frame(t.kind("get"), flat(many)))
        s.sendall(frame(t.kind("error"), flat(b"", b"a\0b\nc", b"\xff\xfe\n[forged] line" * 10, ("d", math.nan))))
        s.sendall(announce)
        drain(s, 2)
        t.alive("absurd but well-formed messages")
        expect("\n[forged]" not in t.log(), "a peer can forge lines of the log")
    # Plasma: order and other clients' objects.
    def create(oid, data=100, meta=0, now=1, device=0, owner=b"\x01" * 28):
        return frame(1, flat(oid, owner, b"127.0.0.1", ("i", 1), owner, ("b", 0), ("q", data), ("q", meta), ("i", 0), ("i", device), ("b", now)))

    mine = os.urandom(28)
    from_store = plasma_types(t)
    a, b = t.connect(plasma), t.connect(plasma)
    a.sendall(create(mine))
    answer(a)
    for s, what, body, words in ((b, "abort", mine, "is not being created by the client"), (b, "seal", mine, "cannot be sealed"),
                                 (b, "seal", os.urandom(28), "cannot be sealed"), (a, "abort", os.urandom(28), "is not being created")):
        before = t.field.log_sizes()
        s.sendall(frame(from_store[what], flat(body)))
        answer(s)
        wait_for(lambda: words in t.field.daemon_log(before), 10, f"the log names the {what} of what is not its own")
    a.sendall(frame(from_store["seal"], flat(mine)))
    answer(a)
    a.sendall(frame(from_store["seal"], flat(mine)))  # twice
    answer(a)
    a.sendall(frame(from_store["release"], flat(os.urandom(28), ("b", 1))))  # not held
    answer(a)
    for size in ((1 << 64) - 1, 1 << 63, (1 << 63) - 1, 1 << 46, (1 << 46) + 1):  # signed sizes that lie
        size = size - (1 << 64) if size >= 1 << 63 else size
        for data, meta in ((size, 0), (0, size), (size, size), (size, 1), (1, size)):
            a.sendall(create(os.urandom(28), data, meta))
            answer(a)
    a.sendall(create(os.urandom(28), 100, device=7))
    answer(a)
    expect(t.send(plasma, frame(1, flat(b"short"))) is not None, "an id of 5 bytes: the connection is still open")
    # Many gets, each of one id many times: few bytes that want much memory.
    big = frame(from_store["get"], repeated(0, 400_000, os.urandom(28)))
    for timeout in (0, 1):
        body = flat([os.urandom(28)] * 100, ("q", 1 << 62 if timeout else 0))
        for _ in range(50):
            b.sendall(frame(from_store["get"], body))
    hog = t.connect(plasma)
    with contextlib.suppress(OSError):
        for _ in range(3):
            hog.sendall(big)
        hog.settimeout(5)
        drain(hog, 5)
    hog.close()
    for s in (a, b):
        s.close()
    t.alive("plasma attacks")
    # Random bodies for every type.
    for path in (raylet, plasma):
        good = flat([object_id, os.urandom(28)], None, ("i", 1), ("q", 5), object_id)
        for kind in range(0, 24):
            for _ in range(6):
                body = bytearray(good)
                for _ in range(rng.randrange(1, 8)):
                    body[rng.randrange(len(body))] = rng.randrange(256)
                frames = [frame(kind, bytes(body))]
                if path == raylet:
                    frames.insert(0, t.register())
                with t.connect(path) as s:
                    with contextlib.suppress(OSError):
                        s.sendall(b"".join(frames))
                        s.shutdown(socket.SHUT_WR)
                        expect(drain(s) is not None, f"type {kind}: the node does not close after the peer did")
        t.alive(f"random messages at {path}")
    t.intact()
    t.ends()


def plasma_types(t):
    """Numbers of the plasma socket's messages, the same in both releases."""
    return {"create": 1, "retry": 2, "abort": 4, "seal": 6, "get": 8, "release": 10, "delete": 12, "contains": 14, "connect": 16}


def answer(s):
    """One framed answer; descriptors and their bytes that follow are passed over."""
    s.settimeout(20)
    head = b""
    while len(head) < 24:
        data = s.recv(24 - len(head))
        expect(data, "the node closed a connection that had not misbehaved")
        head += data
        if head[0] == 0x14:  # the byte that carries a descriptor
            head = head[1:]
    cookie, kind, length = struct.unpack("<qqq", head)
    expect(cookie == COOKIE, f"an answer without a header: {head!r}")
    body = b""
    while len(body) < length:
        body += s.recv(length - len(body))
    return kind, body


# -- gRPC ---------------------------------------------------------------------------------------------
STRANGE = ["", "x", "\n[2026-01-01] E forged", "a" * 5000, "\u0000\u0001\u007f", "\u202e\U0001f980", "CPU", "%s%n%s", "../../etc", "{", "node:__internal_head__"]
BYTES = [b"", b"\x00", b"\xff" * 28, b"\x00" * 28, b"a" * 300, b"\xff" * 18, b"\xff" * 4, b"\x01" * 16, b"\x02" * 24]
INTS = [0, 1, -1, 2**31 - 1, -(2**31), 7]
LONGS = INTS + [2**63 - 1, -(2**63), 10**15]
DOUBLES = [0.0, -1.0, math.nan, math.inf, -math.inf, 1e308, 1e-308, 0.00001, 1e14, 1e15, 3.5]


def fill(m, rng, depth=0):
    """Absurd values in random fields of a message."""
    for f in m.DESCRIPTOR.fields:
        if rng.random() < 0.35 or f.name in ("num_workers",):
            continue
        is_map = f.message_type is not None and f.message_type.GetOptions().map_entry
        with contextlib.suppress(ValueError, TypeError):  # a value that this kind of field cannot hold
            if is_map:
                value = f.message_type.fields_by_name["value"]
                for _ in range(rng.randrange(4)):
                    key = rng.choice(STRANGE) if f.message_type.fields_by_name["key"].type == 9 else rng.choice(INTS)
                    if value.message_type:
                        if depth < 4:
                            fill(getattr(m, f.name)[key], rng, depth + 1)
                    else:
                        getattr(m, f.name)[key] = scalar(value, rng)
            elif f.is_repeated if hasattr(f, "is_repeated") else f.label == 3:
                for _ in range(rng.randrange(4)):
                    if f.message_type:
                        if depth < 4:
                            fill(getattr(m, f.name).add(), rng, depth + 1)
                    else:
                        getattr(m, f.name).append(scalar(f, rng))
            elif f.message_type:
                if depth < 4:
                    getattr(m, f.name).SetInParent()
                    fill(getattr(m, f.name), rng, depth + 1)
            else:
                setattr(m, f.name, scalar(f, rng))
    return m


def scalar(f, rng):
    if f.type in (1, 2):
        return rng.choice(DOUBLES)
    if f.type == 9:
        return rng.choice(STRANGE)
    if f.type == 12:
        return rng.choice(BYTES)
    if f.type == 8:
        return rng.random() < 0.5
    if f.type == 14:
        return rng.choice([0, 1, 2, 77, -1])
    if f.type in (3, 18, 16):
        return rng.choice(LONGS)
    if f.type in (4, 6):
        return rng.choice([0, 1, 2**64 - 1, 2**63])
    if f.type in (13, 7):
        return rng.choice([0, 1, 2**32 - 1])
    return rng.choice(INTS)


class Rpc:
    def __init__(self, t):
        import grpc

        self.grpc = grpc
        self.channel = grpc.insecure_channel(f"{t.node.ip}:{t.port}", options=[("grpc.enable_http_proxy", 0), ("grpc.max_send_message_length", -1)])

    def start(self, method, body, seconds=10):
        return self.channel.unary_unary(method)(body, timeout=seconds) if seconds < 0 else self.channel.unary_unary(method).future(body, timeout=seconds)

    def call(self, method, body, seconds=10):
        """(code, text or answer)"""
        try:
            return self.grpc.StatusCode.OK, self.start(method, body, seconds).result()
        except self.grpc.RpcError as e:
            return e.code(), e.details()


def every_rpc(field):
    """Every method of both services: empty, malformed, absurd."""
    t = Target(field)
    rpc = Rpc(t)
    from ray.core.generated import node_manager_pb2

    rng = random.Random(11)
    late = rpc.grpc.StatusCode.DEADLINE_EXCEEDED
    may_wait = {"RequestWorkerLease", "PushMutableObject"}
    methods = [(m.name, m.input_type) for s in node_manager_pb2.DESCRIPTOR.services_by_name.values() for m in s.methods]
    for name, kind in methods:
        path = f"/ray.rpc.NodeManagerService/{name}"
        cls = getattr(node_manager_pb2, kind.name)
        bodies = [b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", b"\x0b" * 200]
        if name != "ShutdownRaylet":
            bodies.append(b"")
            if name != "DrainRaylet":
                bodies += [fill(cls(), rng).SerializeToString() for _ in range(25)]
        calls = [(b, rpc.start(path, b, 15)) for b in bodies]
        for body, call in calls:
            if name in may_wait:
                continue
            with contextlib.suppress(rpc.grpc.RpcError):
                call.result()
            expect(call.code() is not late, f"{name} is not answered: {body[:200].hex()}")
        for _, call in calls:
            call.cancel()
        t.alive(name)
    t.said("malformed|are not a message", "a malformed request")
    om = "/ray.rpc.ObjectManagerService/"
    for name in ("Push", "Pull", "FreeObjects", "Nothing"):
        for body in (b"", b"\xff" * 100, pb(f1=b"\x01" * 28, f2=b"x"), pb(f1=b"n" * 28, f2=b"o" * 28), pb(f1=b"\x01" * 300, f2=b"\x02" * 300)):
            code, _ = rpc.call(om + name, body)
            expect(code is not late, f"{name} is not answered: {body.hex()}")
    t.alive("the object manager's methods")
    # Health, unknown services, other names.
    health = "/grpc.health.v1.Health/Check"
    code, _ = rpc.call(health, b"")
    expect(code is rpc.grpc.StatusCode.OK, f"health: {code}")
    for body in (b"\xff" * 30, pb(f1=b"no such"), pb(f1=b"\xff\xfe")):
        code, _ = rpc.call(health, body)
        expect(code not in (late, rpc.grpc.StatusCode.OK), f"health of {body!r}: {code}")
    for path in ("/", "/x", "//", "/ray.rpc.NodeManagerService/", "/a" * 2000, "/%00%0a"):
        code, text = rpc.call(path, b"")
        expect(code not in (late, rpc.grpc.StatusCode.OK), f"{path}: {code} {text}")
    t.alive("unknown methods")
    # The head has restarted, a thousand times at once: acted upon at once, and once more for those that came too soon.
    told = "the head has restarted"
    expect(rpc.call("/ray.rpc.NodeManagerService/NotifyGCSRestart", b"")[0] is rpc.grpc.StatusCode.OK, "NotifyGCSRestart failed")
    before, begin = t.log().count(told), time.monotonic()
    for call in [rpc.start("/ray.rpc.NodeManagerService/NotifyGCSRestart", b"") for _ in range(1000)]:
        call.result()
    wait_for(lambda: t.log().count(told) > before, 10, "nothing was done about the last restart")
    most = 2 + int(time.monotonic() - begin)
    expect(t.log().count(told) - before <= most, f"{t.log().count(told) - before} times something was done about a restart, at most {most} are right")
    t.intact()
    amounts(t, rpc)
    chunks(t, rpc)
    t.intact()
    t.ends()


def silent_driver(field):
    """A driver whose port takes calls and answers none: the node asks it for figures, and ends while the answers are out."""
    t = Target(field)
    rpc = Rpc(t)
    from ray.core.generated import node_manager_pb2

    with socket.create_server(("127.0.0.1", 0)) as door, t.connect(t.raylet_socket) as s:
        s.sendall(t.register() + frame(t.kind("announce"), flat(("i", door.getsockname()[1]), b"silent")))
        wait_for(lambda: "came: silent" in t.log(), 20, "the silent driver is known")
        calls = [rpc.start(f"/ray.rpc.NodeManagerService/{m.name}", b"", 60)
                 for service in node_manager_pb2.DESCRIPTOR.services_by_name.values() for m in service.methods
                 if m.name in ("GetNodeStats", "GetObjectsInfo", "GetTasksInfo")]
        door.settimeout(20)
        asked, _ = door.accept()
        t.ends()
        asked.close()
        for call in calls:
            expect(call.exception(10) is not None or call.result() is not None, "a call without an end")


def amounts(t, rpc):
    """Bundles and leases with amounts that nobody has."""
    from ray.core.generated import common_pb2, node_manager_pb2

    invalid = rpc.grpc.StatusCode.INVALID_ARGUMENT
    base = "/ray.rpc.NodeManagerService/"
    for value in (math.nan, -1.0, math.inf, -math.inf, 1e300):
        m = node_manager_pb2.PrepareBundleResourcesRequest()
        b = m.bundle_specs.add()
        b.bundle_id.placement_group_id, b.bundle_id.bundle_index = os.urandom(18), 0
        b.unit_resources["CPU"] = value
        code, text = rpc.call(base + "PrepareBundleResources", m.SerializeToString())
        expect(code is invalid and "CPU" in text, f"a bundle with {value} CPUs: {code} {text}")
    for name in ("", "a" * 1000):
        m = node_manager_pb2.PrepareBundleResourcesRequest()
        b = m.bundle_specs.add()
        b.bundle_id.placement_group_id, b.bundle_id.bundle_index = os.urandom(18), 0
        b.unit_resources[name] = 1
        code, text = rpc.call(base + "PrepareBundleResources", m.SerializeToString())
        expect(code is invalid and "resource" in text, f"a bundle of {name[:5]!r}: {code} {text}")
    spec = node_manager_pb2.RequestWorkerLeaseRequest.DESCRIPTOR.fields_by_name
    field = "lease_spec" if "lease_spec" in spec else "resource_spec"
    for value in (math.nan, -2.5, math.inf, 1e300):
        m = node_manager_pb2.RequestWorkerLeaseRequest()
        getattr(m, field).required_resources["CPU"] = value
        code, text = rpc.call(base + "RequestWorkerLease", m.SerializeToString())
        expect(code is invalid and "CPU" in text, f"a lease with {value} CPUs: {code} {text}")
    empty = node_manager_pb2.PrepareBundleResourcesRequest()  # bundles of nothing, committed and removed; repeated
    for i in range(3):
        b = empty.bundle_specs.add()
        b.bundle_id.placement_group_id, b.bundle_id.bundle_index = b"\x05" * 18, i % 2
    for name in ("PrepareBundleResources", "CommitBundleResources", "CommitBundleResources"):
        code, text = rpc.call(base + name, empty.SerializeToString())
        expect(code is rpc.grpc.StatusCode.OK, f"{name} of bundles of nothing: {code} {text}")
    code, text = rpc.call(base + "ReleaseUnusedBundles", b"")
    expect(code is rpc.grpc.StatusCode.OK, f"ReleaseUnusedBundles: {code} {text}")
    # Thousands of leases that can never be granted, and their cancellation by the peer.
    m = node_manager_pb2.RequestWorkerLeaseRequest()
    spec = getattr(m, field)
    spec.required_resources["no such thing"] = 1
    calls = []
    for i in range(3000):
        if t.v235:
            spec.task_id = i.to_bytes(24, "little")
        else:
            spec.lease_id = i.to_bytes(32, "little")
        calls.append(rpc.start(base + "RequestWorkerLease", m.SerializeToString(), 60))
    code, _ = rpc.call(base + "GetResourceLoad", b"")
    expect(code is rpc.grpc.StatusCode.OK, f"GetResourceLoad among 3000 leases: {code}")
    for c in calls:
        c.cancel()
    t.alive("absurd amounts")


def chunks(t, rpc):
    """Push messages with lying sizes, offsets, counts and ids; of objects that nobody wants and of one that the node pulls."""
    push = "/ray.rpc.ObjectManagerService/Push"
    invalid, ok = rpc.grpc.StatusCode.INVALID_ARGUMENT, rpc.grpc.StatusCode.OK

    def chunk(oid, index=0, size=100, meta=0, data=b"x" * 100, owner=b""):
        return pb(f1=os.urandom(28), f2=oid, f3=os.urandom(28), f4=owner, f5=index, f6=size, f7=meta, f8=data)

    nobody = os.urandom(28)
    code, text = rpc.call(push, chunk(nobody))
    expect(code is ok, f"a chunk that nobody wants: {code} {text}")

    def lies(oid):
        for what, body in (("a long id", chunk(oid + b"x")), ("an index beyond", chunk(oid, index=2**32 - 1)), ("a negative index", chunk(oid, index=-1)),
                           ("too few bytes", chunk(oid, data=b"x")), ("too many bytes", chunk(oid, data=b"x" * 101)), ("no bytes", chunk(oid, data=b"")),
                           ("a size of 2^64-1", chunk(oid, size=-1)), ("a size of 2^50", chunk(oid, size=1 << 50)), ("metadata beyond", chunk(oid, meta=101)),
                           ("metadata of 2^64-1", chunk(oid, meta=-1)), ("no id", pb(f5=1, f6=1)), ("a broken owner", chunk(oid, owner=b"\xff" * 20)),
                           ("a huge owner", chunk(oid, owner=b"\x0a" * 3000))):
            code, text = rpc.call(push, body)
            expect(code is invalid and text.startswith("Push"), f"{what}: {code} {text}")

    lies(nobody)
    # A wait for an object that this node then wants.
    wanted = os.urandom(28)
    with t.connect(t.raylet_socket) as s:
        s.sendall(t.register() + frame(t.kind("get"), flat([wanted])))
        lies(wanted)
        for body in (chunk(wanted, size=1 << 43, data=b"x" * (5 << 20)), chunk(wanted, size=(5 << 20) + 7, data=b"x" * (5 << 20)),
                     chunk(wanted, index=1, size=(5 << 20) + 7, data=b"x" * 7), chunk(wanted, size=8, data=b"x" * 8)):
            rpc.start(push, body, 30)
        drain(s, 2)
        t.alive("chunks")
    t.said("Push from", "a lying chunk")


def not_grpc(field):
    """Other protocols at the gRPC port, many connections, and messages that never end."""
    t = Target(field)
    rng = random.Random(3)
    where = (t.node.ip, t.port)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    settings = b"\0\0\0\4\0\0\0\0\0"

    def h2(kind, flags, stream, body, length=None):
        return (len(body) if length is None else length).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body

    garbage = [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /" + b"a" * 100000, b"\x16\x03\x01\x02\x00\x01" + os.urandom(500), b"\0" * 5000,
               preface, preface + b"\xff" * 64, preface + settings + h2(1, 4, 1, os.urandom(200)), preface + settings + h2(1, 0, 1, b"\x40" * 16000, 16000),
               preface + settings + h2(9, 0, 1, b"x" * 100) * 50, preface + settings + h2(0, 0, 5, b"x" * 16000) * 20,
               preface + settings + h2(8, 0, 0, b"\0\0\0\0") * 10, preface + settings + b"".join(h2(3, 0, i, b"\0\0\0\0") for i in range(1, 999, 2)),
               preface + settings + h2(6, 0, 0, b"12345678") * 5000, preface + h2(4, 0, 0, b"\0\3\0\0\0\0" * 2000, 12000)]
    garbage += [preface + settings + os.urandom(rng.randrange(10, 3000)) for _ in range(20)]
    for data in garbage:
        with socket.create_connection(where, timeout=10) as s:
            with contextlib.suppress(OSError):
                s.sendall(data)
                drain(s, 0.2)
        t.alive(f"{data[:60]!r}")
    rpc = Rpc(t)
    stub = rpc.channel.unary_unary("/ray.rpc.NodeManagerService/GetSystemConfig")
    for metadata in ([("x", "y" * 100000)], [(f"k{i}", "v" * 100) for i in range(2000)], [("x-bin", b"\xff" * 9000)]):
        with contextlib.suppress(rpc.grpc.RpcError):
            stub(b"", metadata=metadata, timeout=10)
        t.alive("giant headers")
    code, text = Rpc(t).call("/ray.rpc.NodeManagerService/GetSystemConfig", b"")
    expect(code is rpc.grpc.StatusCode.OK, f"after giant headers: {code} {text}")
    # Thousands of connections at each door, each with half a message.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 20000), hard))
    open_ones = []
    allowed = int(re.search(r"Max open files +(\d+)", read(f"/proc/{t.pid}/limits"))[1])  # beyond it: see no_descriptors
    for path in (t.raylet_socket, t.plasma_socket):
        for _ in range(min(1500, (allowed - 700) // 2)):
            s = t.connect(path)
            s.sendall(frame(1, b"x" * 100, length=10 << 20))
            open_ones.append(s)
    for _ in range(500 if allowed > 4000 else 100):
        s = socket.create_connection(where, timeout=10)
        s.sendall(preface[:10])
        open_ones.append(s)
    t.runs_a_task()
    note(f"with {len(open_ones)} connections open: {t.count()} descriptors, memory grew by {(t.rss() - t.memory) >> 20} MiB")
    # A sender of one byte at a time is no hindrance to the others.
    slow = t.connect(t.plasma_socket)
    for byte in frame(plasma_types(t)["connect"], flat(("q", 0))):
        slow.sendall(bytes([byte]))
    answer(slow)
    for s in open_ones + [slow]:
        s.close()
    # A peer that asks and never reads.
    deaf = t.connect(t.plasma_socket)
    deaf.settimeout(0.5)
    ask = frame(plasma_types(t)["get"], flat([os.urandom(28)] * 5000, ("q", 0)))
    with contextlib.suppress(OSError):
        for _ in range(1200):
            deaf.sendall(ask)
    t.alive("a peer that never reads")
    deaf.close()
    t.intact()
    t.ends()


def no_descriptors(field):
    """The node has 200 descriptors, and peers take them all."""
    t = Target(field, wrap=["bash", "-c", 'ulimit -n 200 && exec "$@"', "limited"])
    expect("Max open files            200" in read(f"/proc/{t.pid}/limits"), "the daemon has more than 200 descriptors")
    open_ones = []
    for path in (t.raylet_socket, t.plasma_socket):
        for _ in range(400):
            s = socket.socket(socket.AF_UNIX)
            s.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                s.connect(path)
            open_ones.append(s)
    for _ in range(100):
        s = socket.socket()
        s.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            s.connect((t.node.ip, t.port))
        open_ones.append(s)
    wait_for(lambda: t.count() >= 195, 20, "the descriptors are used up")
    t.said("cannot accept a connection on", "the want of descriptors")
    time.sleep(3)  # it must not be said again and again meanwhile
    t.alive("no descriptor left")
    lines = t.log().count("cannot accept a connection on")
    expect(lines <= 4, f"{lines} lines in the log tell of it")  # each socket, in both files
    for s in open_ones:
        s.close()
    t.intact()
    t.ends()


def helpers_stopped(field):
    """The helper processes hang (SIGSTOP): tasks run, and the node still ends."""
    t = Target(field)
    helpers = t.node.of("dashboard_agent") + t.node.of("runtime_env_agent") + t.node.of("log_monitor")
    expect(helpers, "no helper processes were found")
    for p in helpers:
        os.kill(p.pid, signal.SIGSTOP)
    t.runs_a_task()
    t.intact()
    for p in t.node.of("worker"):  # a task that came to one of these would wait, on any node
        os.kill(p.pid, signal.SIGSTOP)
    t.ends()
    for p in helpers:
        with contextlib.suppress(OSError):
            os.kill(p.pid, signal.SIGCONT)


def bad_starts(field):
    """Start options that cannot work: a non-zero exit, a text that names the cause, nothing left behind."""
    t = Target(field)
    scratch = os.path.join(field.temp_dir, "scratch")
    os.mkdir(scratch)
    taken = socket.socket()
    taken.bind((t.node.ip, 0))
    taken.listen(1)
    busy = taken.getsockname()[1]
    plain = os.path.join(scratch, "file")
    open(plain, "w").close()
    own = {"raylet_socket_name": f"{scratch}/raylet", "store_socket_name": f"{scratch}/store", "node_manager_port": "0", "object_manager_port": "0"}
    long_path = f"{scratch}/" + "x" * 120
    cases = [
        ("a socket path that is too long", {"raylet_socket_name": long_path}, "xxx.*at most 107"),
        ("a store socket path that is too long", {"store_socket_name": long_path}, "xxx.*at most 107"),
        ("a socket in a folder that is not there", {"raylet_socket_name": f"{scratch}/no/raylet"}, "no/raylet.*No such file"),
        ("a used port", {"node_manager_port": str(busy)}, f"{busy}.*node_manager_port|node_manager_port.*{busy}|{busy}"),
        ("a session folder that is not there", {"session_dir": f"{scratch}/gone", "log_dir": f"{scratch}/gone/logs"}, "session_dir=.*gone.*No such file"),
        ("a session folder that is a file", {"session_dir": plain, "log_dir": plain}, "scratch/file is no folder"),
    ]
    shm = set(os.listdir("/dev/shm"))
    for what, change, words in cases:
        argv = []
        options = {**own, **change}
        ports = set(re.findall(r"port=([1-9]\d{3,})\b", " ".join(w for w in t.argv if "agent" in w)))  # of the agents of the node that runs
        fresh = {port: str(_field.free_port()) for port in ports}
        key = lambda w: w.lstrip("-").split("=", 1)[0]
        for word in t.argv:
            for port, other in fresh.items():
                word = word.replace(f"port={port}", f"port={other}")
            name = key(word)
            if name in ("stdout_filepath", "stderr_filepath"):
                continue
            if name == "node_id":
                options["node_id"] = os.urandom(28).hex()
            argv.append(f"--{name}={options.pop(name)}" if word.startswith("--") and name in options else word)
        log = field.log_path("start")
        p = field.spawn(argv, log, SANITIZED, executable=f"/proc/{t.pid}/exe")
        try:
            status = p.wait(25)
        except subprocess.TimeoutExpired:
            left = _field._proc.owned({p.pid}, log + "@")
            raise _field.Wrong(f"{what}: the daemon runs all the same ({_field.describe(left)}): {read(log)[-800:]}") from None
        text = read(log)
        expect(not SANITIZER.search(text), f"{what}: {text[:3000]}")
        expect(status > 0, f"{what}: exit status {status}: {text[-800:]}")
        expect(re.search(words, text), f"{what}: the text does not name it ({words}): {text[-800:]}")
        left = _field._proc.wait_gone(_field._proc.owned({p.pid}, log + "@"), 10)
        expect(not left, f"{what}: left running: {_field.describe(left)}")
        sockets = [n for n in os.listdir(scratch) if n not in ("file",)]
        expect(not sockets, f"{what}: left behind: {sockets}")
        for name in sockets:
            os.unlink(os.path.join(scratch, name))
    expect(set(os.listdir("/dev/shm")) <= shm, f"left in /dev/shm: {set(os.listdir('/dev/shm')) - shm}")
    t.alive("its neighbours' failed starts")
    t.intact()
    t.ends()


if __name__ == "__main__":
    _field.run(both_sockets, every_rpc, silent_driver, not_grpc, no_descriptors, helpers_stopped, bad_starts, limit=170)
