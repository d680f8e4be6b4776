"""Report B32: token login. The right token joins by either way, a wrong or missing one ends fast with one clear line, calls
without a token are refused, health answers stay open."""
import os
import re
import time

import _b
import _field
from _b import note, step, wait_for
from _field import Skip, Wrong, expect

TOKEN, WRONG = "field-token-0123456789abcdef-0123", "another-token-0123456789abcdef-00"


def home(f, name, token=None):
    """An own home folder, so that no token file of the user is read or left."""
    path = os.path.join(f.temp_dir, name)
    os.makedirs(os.path.join(path, ".ray"), exist_ok=True)
    if token:
        with open(os.path.join(path, ".ray", "auth_token"), "w") as out:
            out.write(token + "\n")
    return path


def begin(f):
    if not _b.is_260(f):
        raise Skip("this release has no token login")
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "HOME": home(f, "h")}
    os.environ.update(env)  # for the drivers and look-ups of this process and its children
    f.more = env
    plain = f.environment
    f.environment = lambda e=None, mark="": plain({**env, **(e or {})}, mark)
    f.start_head(seconds=120)


def raylet_line(f, since):
    """Error lines of node daemons after `since` characters of their log."""
    return [x for x in f.daemon_log()[since:].splitlines() if re.search(r"oken|AUTH|auth", x)]


def joins(f):
    begin(f)
    path = os.path.join(f.temp_dir, "token.txt")
    with open(path, "w") as out:
        out.write(TOKEN + "\n")
    ways = {
        "RAY_AUTH_TOKEN": {},
        "RAY_AUTH_TOKEN_PATH": {"RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": path},
        "the file in the home folder": {"RAY_AUTH_TOKEN": None, "HOME": home(f, "with_file", TOKEN)},
    }
    nodes = {}
    for i, (name, env) in enumerate(ways.items()):
        with step(f"a node joins by {name}"):
            nodes[name] = f.start_node(num_cpus=1, resources={f"way{i}": 1}, env=env)
    ray = _b.connect(f)

    @ray.remote(num_cpus=0)
    def where():
        return ray.get_runtime_context().get_node_id()

    with step("tasks run on each"):
        for i, node in enumerate(nodes.values()):
            expect(ray.get(where.options(resources={f"way{i}": 0.1}).remote(), timeout=90) == node.node_id, "it ran elsewhere")
    node = nodes["RAY_AUTH_TOKEN"]
    calls(f, node)


def calls(f, node):
    """Calls on the node's own ports without a token, with a wrong one, with the right one."""
    import grpc

    channel = grpc.insecure_channel(f"{node.ip}:{node.record['manager_port']}")

    def call(method, token):
        """The status of a call with an empty message."""
        fn = channel.unary_unary(f"/ray.rpc.{method}", request_serializer=bytes, response_deserializer=bytes)
        try:
            fn(b"", metadata=[("authorization", f"Bearer {token}")] if token else None, timeout=10)
            return grpc.StatusCode.OK
        except grpc.RpcError as error:
            return error.code()

    stats = "NodeManagerService/GetNodeStats"
    methods = [stats, "NodeManagerService/ShutdownRaylet", "NodeManagerService/RequestWorkerLease", "NodeManagerService/Nonsense",
               "ObjectManagerService/Pull", "ObjectManagerService/Push", "ObjectManagerService/FreeObjects"]
    with step("calls without a token or with a wrong one are refused"):
        for method in methods:
            for token in (None, WRONG, TOKEN[:-1], TOKEN + "x"):
                code = call(method, token)
                expect(code == grpc.StatusCode.UNAUTHENTICATED, f"{method} with {token!r}: {code}")
    with step("with the right token they are served"):
        code = call(stats, TOKEN)
        expect(code == grpc.StatusCode.OK, code)
    with step("health answers need no token"):
        health = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        expect(health(b"", timeout=10) == b"\x08\x01", "not SERVING")
    channel.close()


def refused(f):
    begin(f)
    wrong = os.path.join(home(f, "wrong", WRONG), ".ray", "auth_token")
    cases = {
        "a wrong token": ({"RAY_AUTH_TOKEN": WRONG}, "nauthenticated|nvalid.*token|refused"),
        "a file with a wrong token": ({"RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": wrong}, "nauthenticated|nvalid.*token|refused"),
        "no token": ({"RAY_AUTH_TOKEN": None, "HOME": home(f, "none")}, "oken"),
        "a token path that is not there": ({"RAY_AUTH_TOKEN": None, "RAY_AUTH_TOKEN_PATH": "/nonexistent/token"}, "/nonexistent/token"),
    }
    for name, (env, words) in cases.items():
        with step(f"a node with {name} ends fast, with a line that says so"):
            since, began = len(f.daemon_log()), time.monotonic()
            node = f.launch_node(num_cpus=1, env=env)
            status = wait_for(lambda: node.process.poll() is not None and (node.process.poll(),), 40, "ray start has ended")[0]
            said = node.output + f.daemon_log()[since:]
            expect(status != 0, "ray start claims success")
            expect(re.search(words, said), f"status {status}, nothing about it in: {said[-800:]}")
            wait_for(lambda: not node.processes(), 15, "no process is left")
            note(f"{time.monotonic() - began:.1f} s")


def daemon_refused(f):
    """The daemon alone, without ray start's own look at the token."""
    begin(f)
    good = f.start_node(num_cpus=1)
    words = open(f"/proc/{good.raylet}/cmdline", "rb").read().decode().split("\0")[:-1]
    env = dict(x.split("=", 1) for x in open(f"/proc/{good.raylet}/environ", "rb").read().decode().split("\0") if "=" in x)
    for i, (name, token, expected) in enumerate([("a wrong token", WRONG, "oken|nauthenticated"), ("no token", None, "oken")]):
        with step(f"a daemon with {name} ends with status 1 and one line"):
            argv = []
            for w in words:
                if w.startswith("--raylet_socket_name=") or w.startswith("--store_socket_name="):
                    w += f".{i}"
                if w.startswith("--node_id="):
                    w = f"--node_id={i:056x}"
                if w.startswith(("--stdout_filepath=", "--stderr_filepath=")):
                    w = w.split("=")[0] + "="
                if w.startswith(("--node_manager_port=", "--object_manager_port=")):
                    w = w.split("=")[0] + "=0"
                argv.append(w)
            own = {**env, "RAY_AUTH_TOKEN": token, "HOME": home(f, "empty"), "RAY_AUTH_TOKEN_PATH": None}
            log = f.log_path("daemon")
            process = f.spawn(argv, log, own)
            status = wait_for(lambda: process.poll() is not None and (process.poll(),), 40, "the daemon has ended")[0]
            text = _field.read(log)
            lines = [x for x in text.splitlines() if re.search(expected, x)]
            expect(status == 1 and lines, f"status {status}: {text[-800:]}")
            expect(len(lines) <= 2, f"said {len(lines)} times: {lines[:4]}")
            note(lines[0])


if __name__ == "__main__":
    _field.run(joins, refused, daemon_refused, limit=240)
