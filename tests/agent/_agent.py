"""What the tests of the native agent share: heads and nodes (of ../field/_field.py), payloads from the head, HTTP."""
import http.client
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "field"))
import _field  # noqa: E402
from _field import expect, note, wait_for  # noqa: E402,F401

NATIVE, STOCK = {"RAYLET_C_AGENT": "native"}, {"RAYLET_C": "0"}

SUBSCRIBER = """
import asyncio, json, sys, time
from ray._private.gcs_pubsub import GcsAioResourceUsageSubscriber

async def main():
    s = GcsAioResourceUsageSubscriber(address=sys.argv[1])
    await s.subscribe()
    while True:
        got = await s.poll(timeout=5)
        for key, value in [got] if isinstance(got, tuple) else got:
            if key is not None:
                key = key.decode() if isinstance(key, bytes) else key
                print(json.dumps([time.time(), key, json.loads(value)]), flush=True)

asyncio.run(main())
"""


class Payloads:
    """Statistics as the head hands them on: of each node the list of (time, payload)."""

    def __init__(self, field):
        self.log = field.log_path("payloads")
        field.spawn([field.python, "-c", SUBSCRIBER, field.address], self.log)

    def of(self, node):
        lines = [line for line in _field.read(self.log).splitlines() if line.startswith("[")]
        parsed = []
        for line in lines:
            try:
                parsed.append(json.loads(line))
            except ValueError:
                pass  # still being written
        return [(at, value) for at, key, value in parsed if key == f"RAY_REPORTER:{node.node_id}"]

    def wait(self, node, count=1, seconds=60):
        wait_for(lambda: len(self.of(node)) >= count, seconds, f"{count} reports of statistics")
        return self.of(node)[-1][1]


def option(node, name):
    """The value of an option of the node's start command."""
    return next(w.split("=", 1)[1] for w in node.process.args if w.startswith(f"--{name}="))


def start(field, env=NATIVE, options=(), **how):
    """A node with a metrics port of its own; .agent and .metrics are (address, port)."""
    port = _field.free_port()
    node = field.start_node(env=dict(env), options=[f"--metrics-export-port={port}", *options], **how)
    node.agent = (node.ip, int(option(node, "dashboard-agent-listen-port")))
    node.metrics = (node.ip, port)
    return node


def get(address, path, headers=None, method="GET", body=None, seconds=5):
    """(status, text, seconds it took)."""
    began = time.monotonic()
    c = http.client.HTTPConnection(*address, timeout=seconds)
    try:
        c.putrequest(method, path, skip_accept_encoding=True)
        for key, value in (headers or {}).items():
            c.putheader(key, value)
        c.putheader("Content-Length", str(len(body or b"")))
        c.endheaders(body)
        reply = c.getresponse()
        text = reply.read().decode(errors="replace")
        return reply.status, text, time.monotonic() - began
    finally:
        c.close()


def python(field, code, *args, env=None, seconds=60):
    """Runs Python code of the environment to its end; its output."""
    p = subprocess.run([field.python, "-c", code, *args], capture_output=True, text=True, env=field.environment(env), timeout=seconds)
    expect(p.returncode == 0, f"{p.stderr[-1500:]}")
    return p.stdout
