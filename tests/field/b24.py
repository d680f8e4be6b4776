"""Report B24: the network that trainers use is told once a node; EFA that is there and not used is a warning, or a refusal when it was
asked for. Report B39: a low limit of locked memory is the workers' too, and is named before anything registers memory.

The machines with EFA are made up (_machine.py): their daemon looks at a described machine, their trainers are CPU ranks."""
import json
import os
import re
import subprocess
import time
import urllib.request

import _machine
from _field import NET, Field, expect, read, run, wait_for

LOOP = """
import json

def loop(config):
    import resource, torch
    x = torch.ones(4)
    torch.distributed.all_reduce(x)
    names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "FI_PROVIDER", "FI_EFA_FORK_SAFE", "FI_EFA_USE_HUGE_PAGE", "NCCL_PROTO", "NCCL_DEBUG")
    with open(os.environ["FOUND"] + str(os.getpid()), "w") as f:
        json.dump({**{n: os.environ.get(n) for n in names}, "sum": x[0].item(), "locked": resource.getrlimit(resource.RLIMIT_MEMLOCK)}, f)
    end = time.monotonic() + 200
    while os.path.exists(os.environ["FOUND"] + "stay") and time.monotonic() < end:
        time.sleep(0.2)
"""
RAY_TRAIN = """
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

TorchTrainer(loop, scaling_config=ScalingConfig(num_workers=2, resources_per_worker={"under_test": 1}),
             run_config=RunConfig(storage_path=os.environ["FOUND"] + "results")).fit()
"""
ACTORS = """
@ray.remote(resources={"under_test": 1}, num_cpus=0)
class Rank:
    def place(self):
        import socket
        with socket.socket() as s:
            s.bind((ray.util.get_node_ip_address(), 0))
            return s.getsockname()

    def run(self, rank, place):
        import torch.distributed as dist
        os.environ.update(MASTER_ADDR=place[0], MASTER_PORT=str(place[1]), RANK=str(rank), WORLD_SIZE="2")
        dist.init_process_group("gloo")
        loop({})

ranks = [Rank.remote(), Rank.remote()]
place = ray.get(ranks[0].place.remote())
ray.get([rank.run.remote(i, place) for i, rank in enumerate(ranks)])
"""
# Trainers import torch: with the niceness that Ray gives workers they would wait for whatever else a busy machine runs.
WILLING = {"worker_niceness": 0}
DONE = """
print("DONE", [n["Labels"].get("raylet-c/transport") for n in ray.nodes() if n["Resources"].get("under_test")])
"""


class Trained:
    """Two ranks: what each found in its environment, what the node's workers printed, the node's label."""

    def __init__(self, f, during=None, how=ACTORS, **env):
        found = os.path.join(f.temp_dir, f"found{f.count}-")
        logs = f.session_logs()
        before = set(os.listdir(logs))
        init = "runtime_env={'env_vars': %r}" % {"FOUND": found, **env}
        stay = found + "stay"
        if during:
            open(stay, "w").close()
        driver = f.driver(LOOP + how + DONE, env={"FOUND": found}, init=init)
        self.during = during() if during else None
        if during:
            os.unlink(stay)
        wait_for(lambda: driver.poll() is not None, 240, "the driver ends")
        text = read(driver.log)
        expect("DONE" in text, "training failed: " + text[-2000:])
        self.label = re.search(r"DONE \['?(\w+)'?\]", text).group(1)
        names = [n for n in os.listdir(f.temp_dir) if n.startswith(os.path.basename(found)) and n[-1].isdigit()]
        self.ranks = [json.loads(read(os.path.join(f.temp_dir, n))) for n in names]
        expect([r["sum"] for r in self.ranks] == [2.0, 2.0], f"the ranks' sums: {self.ranks}")
        errors = [n for n in os.listdir(logs) if n.startswith("worker-") and n.endswith(".err") and n not in before]
        self.lines = [line for n in errors for line in read(os.path.join(logs, n)).splitlines() if line.startswith("raylet-c: ")]

    def has(self, text):
        return any(text in line for line in self.lines)


def scrape(f, node):
    """The line of the workers' transport among the node's metrics."""
    url = f"http://{node.ip}:{node.record['metrics_port']}/metrics"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            text = answer.read().decode()
    except OSError:
        return None
    return re.findall(r"^ray_train_transport_\w+\{[^\n]*", text, re.M)


def plain(f: Field):
    """No EFA: sockets on the interface of the node's own address; the user's own setting stays."""
    f.start_head(config={"metrics_report_interval_ms": 1000, **WILLING})
    node = f.start_node()

    def metric():
        return wait_for(lambda: [m for m in scrape(f, node) or [] if "workers" in m], 180, "the metric of the workers' transport", every=1)

    t = Trained(f, metric)
    expect(t.label == "tcp", f"the node's label is {t.label}")
    expect(len([line for line in t.lines if "training transport" in line]) == 1, f"not told once: {t.lines}")
    expect(t.has("between nodes gloo: TCP on 127."), f"the line does not name the transport: {t.lines}")
    expect(all(r["NCCL_SOCKET_IFNAME"] == "=lo" and r["GLOO_SOCKET_IFNAME"] == "lo" and r["FI_PROVIDER"] is None for r in t.ranks), str(t.ranks))
    expect(len(t.during) == 1 and "TCP on 127." in t.during[0] and t.during[0].endswith(" 2.0"), f"the metric: {t.during}")
    t = Trained(f, NCCL_SOCKET_IFNAME="lo,eth9", NCCL_DEBUG="WARN")
    expect(all(r["NCCL_SOCKET_IFNAME"] == "lo,eth9" and r["NCCL_DEBUG"] == "WARN" for r in t.ranks), f"the user's setting is lost: {t.ranks}")
    t = Trained(f, RAYLET_C_TRAIN_ENV="")
    expect(not t.lines and all(r["NCCL_SOCKET_IFNAME"] is None for r in t.ranks), f"RAYLET_C_TRAIN_ENV= does not turn it off: {t.lines} {t.ranks}")


def with_efa(f: Field):
    """A described g6.12xlarge: EFA's environment, and warnings where the user's own settings are risky."""
    root = _machine.make(os.path.join(f.temp_dir, "g6"), "g6.12xlarge")
    f.start_head(config=WILLING)
    f.start_node(env={"RC_DOCTOR_ROOT": root, "RAYLET_C_REQUIRE_EFA": "1"})
    t = Trained(f)
    want = {"FI_PROVIDER": "efa", "FI_EFA_FORK_SAFE": "1", "FI_EFA_USE_HUGE_PAGE": "0", "NCCL_PROTO": None}
    expect(t.label == "efa" and all(r[k] == v for r in t.ranks for k, v in want.items()), f"{t.label} {t.ranks}")
    t = Trained(f, NCCL_PROTO="LL128", FI_EFA_USE_HUGE_PAGE="1", FI_PROVIDER="tcp")
    expect(all(r["NCCL_PROTO"] == "LL128" and r["FI_PROVIDER"] == "tcp" for r in t.ranks), f"the user's settings are lost: {t.ranks}")
    expect(t.has("warning: NCCL_PROTO=LL128") and t.has("warning: FI_EFA_USE_HUGE_PAGE=1"), f"no warnings: {t.lines}")


def without_its_parts(f: Field):
    """EFA with a missing plugin: a warning with the reason in the daemon's log and the worker's; required: no node."""
    root = _machine.make(os.path.join(f.temp_dir, "g6"), "g6.12xlarge")
    os.unlink(root + "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu/libnccl-net.so")
    f.start_head(config=WILLING)
    f.start_node(env={"RC_DOCTOR_ROOT": root})
    expect("EFA is there and trainers will not use it: there is no NCCL plugin" in f.daemon_log(), "the daemon does not warn")
    t = Trained(f)
    expect(t.label == "tcp" and t.has("warning: EFA is there and not used: there is no NCCL plugin"), f"{t.label} {t.lines}")
    sizes = f.log_sizes()
    began = time.monotonic()
    node = f.launch_node(ip=f"{NET}.20", env={"RC_DOCTOR_ROOT": root, "RAYLET_C_REQUIRE_EFA": "1"})
    wait_for(lambda: "the node ends: EFA is required" in f.daemon_log(sizes), 30, "the daemon refuses")
    wait_for(lambda: node.process.poll() is not None, 60, "ray start gives up")
    expect(node.process.poll() != 0, "ray start succeeded without the required EFA")
    how = {"program": (f.raylet_c, "start"), "options": ("--require-efa",)}
    node = f.launch_node(ip=f"{NET}.21", env={"RC_DOCTOR_ROOT": root}, **how)
    began = time.monotonic()
    wait_for(lambda: node.process.poll() is not None, 30, "raylet-c start gives up")
    expect(node.process.poll() == 1 and "EFA is required" in node.output and "libnccl-net.so" in node.output, node.output[-1500:])
    expect(time.monotonic() - began < 10, "raylet-c start took long")
    node = f.launch_node(ip=f"{NET}.22", **how)
    wait_for(lambda: node.process.poll() is not None, 30, "raylet-c start gives up")
    expect("this machine has no EFA device" in node.output, node.output[-1500:])


def locked_memory(f: Field):
    """B39: `ulimit -l 64` reaches the workers unchanged, and doctor and daemon name it."""
    low = "file /proc/self/limits Max locked memory         65536                65536                bytes"
    root = _machine.make(os.path.join(f.temp_dir, "g6"), "g6.12xlarge", low)
    f.start_head(config=WILLING)
    f.start_node(env={"RC_DOCTOR_ROOT": root}, wrap=("bash", "-c", 'ulimit -l 64 && exec "$0" "$@"'))
    expect("only 64 KiB of memory may be locked (ulimit -l)" in f.daemon_log(), "the daemon does not name the limit")
    t = Trained(f)
    expect(all(r["locked"] == [65536, 65536] for r in t.ranks), f"the workers' limit is another: {t.ranks}")
    expect(t.has("only 64 KiB of memory may be locked"), f"{t.lines}")
    done = subprocess.run([f.raylet_c, "doctor", "--json"], capture_output=True, text=True, env={"RC_DOCTOR_ROOT": root})
    lines = {c["name"]: c for c in json.loads(done.stdout)["checks"]}
    expect(done.returncode == 1 and lines["locked_memory"]["mark"] == "FAIL", f"{done.returncode} {lines['locked_memory']}")
    expect("ulimit -l unlimited" in lines["locked_memory"]["cure"], str(lines["locked_memory"]))


def ray_train(f: Field):
    """The same under Ray Train."""
    f.start_head(config=WILLING)
    f.start_node()
    t = Trained(f, how=RAY_TRAIN)
    expect(len([line for line in t.lines if "training transport" in line]) == 1, f"not told once: {t.lines}")
    expect(all(r["NCCL_SOCKET_IFNAME"] == "=lo" and r["GLOO_SOCKET_IFNAME"] == "lo" for r in t.ranks), str(t.ranks))


run(plain, ray_train, with_efa, without_its_parts, locked_memory, limit=480)
