"""Figures of an idle node with the native agent, with Ray's own, and of the stock node, in turns: memory, processor time, processes.

    python tests/agent/idle.py --ray-bin .venv-2.60.0/bin

Not a test: it prints. PSS is of all processes of the node but workers; processor time is over 20 s, a while after the start.
"""
import os
import sys
import time

import _agent
import _field
from _agent import NATIVE, STOCK, get, note, start

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "accept"))
from node_figures import cpu_seconds, pss_mb  # noqa: E402

KINDS = {"stock": STOCK, "ours, Ray's agent": {"RAYLET_C_AGENT": "stock"}, "ours, native": NATIVE,
         "ours, native, no prefork": {**NATIVE, "RAYLET_C_PREFORK": "0"}}


def idle(f):
    """Figures of idle nodes."""
    f.start_head()
    for name, env in KINDS.items():
        began = time.monotonic()
        node = start(f, env=env)
        alive = time.monotonic() - began
        time.sleep(25)  # a settled node is what is measured: nothing to wait for
        pids = [p.pid for p in node.processes() if not p.cmdline.startswith("ray::IDLE")]
        before, at = cpu_seconds(pids), time.monotonic()
        time.sleep(20)
        share = (cpu_seconds(pids) - before) / (time.monotonic() - at) * 100
        each = ", ".join(f"{os.path.basename(p.cmdline.split(' ')[0])} {pss_mb([p.pid]):.1f}" for p in node.processes())
        took = sorted(get(node.agent, "/api/local_raylet_healthz")[2] for _ in range(50))
        note(f"{name}: PSS {pss_mb(pids):.1f} MB, {share:.2f} % of a core, start to ALIVE {alive:.2f} s, health page {took[25] * 1000:.2f} ms; {each}")
        _field._proc.end(node.processes())


if __name__ == "__main__":
    _field.run(idle, limit=560)
