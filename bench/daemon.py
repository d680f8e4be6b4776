"""The daemons alone, stock and ours in turns under one stock head: time from the daemon's exec to ALIVE as the head sees it,
and the daemon's own memory (PSS) ten seconds later. For a ray package where `raylet-c enable` was done.

    python bench/daemon.py [--ray-bin DIR] [--rounds N]
"""
import argparse
import os
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "accept"))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "accept", "cases"))
import _cluster  # noqa: E402
import _proc  # noqa: E402
from node_figures import pss_mb  # noqa: E402

NODE = (
    "ray start --address={address} --node-ip-address={ip} --num-cpus=4 --object-store-memory=200000000 "
    "--disable-usage-stats --min-worker-port=0 --max-worker-port=0"
)
TICK = os.sysconf("SC_CLK_TCK")


def started(pid):
    """Wall-clock time at which the process was made, seconds since 1970 (to a hundredth)."""
    with open("/proc/uptime") as f:
        uptime = float(f.read().split()[0])
    with open(f"/proc/{pid}/stat") as f:
        ticks = int(f.read().rsplit(")", 1)[1].split()[19])
    return time.time() - uptime + ticks / TICK


def measure(cluster, command, ip):
    import ray

    known = {n["NodeID"] for n in ray.nodes()}
    process = cluster._command(command.replace("{address}", cluster.address).replace("{ip}", ip), f"daemon-{ip}.out")
    while True:
        new = [n for n in ray.nodes() if n["Alive"] and n["NodeID"] not in known]
        if new:
            break
        if process.poll() not in (None, 0):
            raise SystemExit(f"the node did not start: {cluster.temp_dir}/daemon-{ip}.out")
        time.sleep(0.002)
    alive = time.time()
    daemon = _proc.listener(new[0]["NodeManagerPort"])
    seconds = alive - started(daemon.pid)
    time.sleep(10)
    memory = pss_mb([daemon.pid])
    _proc.end(_proc.owned({process.pid}))
    while any(n["Alive"] and n["NodeID"] == new[0]["NodeID"] for n in ray.nodes()):
        time.sleep(0.2)
    return seconds, memory


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ray-bin", default=os.path.dirname(sys.executable))
    p.add_argument("--rounds", type=int, default=3)
    args = p.parse_args()
    import ray

    cluster = _cluster.Cluster(NODE, args.ray_bin, _cluster.new_temp_dir())
    rows = {"stock": [], "ours": []}
    try:
        cluster.start_head()
        ray.init(address=cluster.address, _node_ip_address=cluster.head["ip"], logging_level="ERROR", log_to_driver=False)
        for i in range(args.rounds):
            for k, name in enumerate(rows):
                prefix = "RAYLET_C=0 " if name == "stock" else ""
                rows[name].append(measure(cluster, prefix + NODE, f"127.0.0.{30 + 2 * i + k}"))
        ray.shutdown()
    finally:
        cluster.stop()
    for column, title in ((0, "s, the daemon's exec to ALIVE"), (1, "MB, the daemon's PSS when idle")):
        a, b = (statistics.median(r[column] for r in rows[name]) for name in rows)
        print(f"{title:40} stock {a:8.3f}  ours {b:8.3f}  ratio {b / a:6.3f}")


if __name__ == "__main__":
    main()
