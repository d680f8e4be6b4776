"""Statistics and metrics of the native agent beside those of a stock node, under one head, in one run."""
import json
import os
import re
import urllib.request

import _agent
import _field
from _agent import NATIVE, STOCK, Payloads, expect, get, note, start, wait_for

ACTORS = """
@ray.remote(resources={where: 1})
class Shown:
    def work(self):
        from ray.util.metrics import Counter, Gauge, Histogram
        self.counter = Counter("shown_count", description="a counter", tag_keys=("a",))
        self.counter.inc(3, tags={"a": 'x"y'})
        self.gauge = Gauge("shown_gauge", description="a gauge", tag_keys=("a",))
        self.gauge.set(7, tags={"a": "y"})
        self.histogram = Histogram("shown_histogram", description="a histogram", boundaries=[1, 10], tag_keys=("a",))
        self.histogram.observe(5, tags={"a": "z"})
        self.memory = b"x" * 50_000_000
        return os.getpid()

actors = [Shown.options(resources={name: 1}).remote() for name in ("stock", "native")]
print("PIDS", *ray.get([a.work.remote() for a in actors]), flush=True)
time.sleep(600)
"""

# What a stock node's own agent process has and this one cannot have.
NOT_OURS = re.compile(r"^(python_|process_|target_info)")
# Series of the stock raylet that tell of its inner parts (its event loops, its scheduler's classes and the like).
STOCK_RAYLET = re.compile(
    r"^ray_(grpc_server_|grpc_client_|operation_|io_context_|scheduler_|internal_num_|object_directory_|pull_manager_|push_manager_|object_manager_|"
    r"spill_manager_|memory_manager_|local_resource_view|worker_register_time|object_store_dist|object_store_)")


def kind(value):
    """The shape of a value: types all the way down; a whole and a broken number are one kind."""
    if isinstance(value, dict):
        return {k: kind(v) for k, v in value.items()}
    if isinstance(value, list):
        return ["list"] if not value else [kind(value[0])]
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


def near(a, b, factor=1.5, slack=0.0):
    return abs(a - b) <= slack or (min(a, b) > 0 and max(a, b) / min(a, b) <= factor)


def compare_payloads(f, ours, theirs, pids):
    for payload in (ours, theirs):
        payload["workers"].sort(key=lambda w: w["createTime"])
    wrong = []
    a, b = dict(ours), dict(theirs)
    for key in sorted(set(a) ^ set(b)):
        wrong.append(f"key {key} is only in {'ours' if key in a else 'stock'}")
    for key in sorted(set(a) & set(b) - {"workers", "disk", "gpus"}):
        if kind(a[key]) != kind(b[key]):
            wrong.append(f"{key}: {kind(a[key])}, not {kind(b[key])}")
    one, two = ({w["pid"]: w for w in p["workers"]}[pid] for p, pid in ((ours, pids[1]), (theirs, pids[0])))
    if kind(one) != kind(two):
        wrong.append(f"a worker: {kind(one)}, not {kind(two)}")
    if one["cmdline"][0] != two["cmdline"][0]:
        wrong.append(f"title {one['cmdline'][:2]}, not {two['cmdline'][:2]}")
    if not near(one["memoryInfo"]["rss"], two["memoryInfo"]["rss"], 2):
        wrong.append(f"rss of a worker: {one['memoryInfo']}, not {two['memoryInfo']}")
    if one["numFds"] < 5 or not near(one["createTime"], two["createTime"], slack=60):
        wrong.append(f"worker: {one}, {two}")
    if sorted(len(d) for d in a["disk"].values()) != sorted(len(d) for d in b["disk"].values()) or set(a["disk"]) != set(b["disk"]):
        wrong.append(f"disk: {a['disk']}, not {b['disk']}")
    same = ["hostname", "cpus"]
    close = {"bootTime": (1, 2), "now": (1, 30), "shm": (2, 1e9), "mem": (1.5, 1e9), "loadAvg": (3, 3), "diskIo": (1.5, 1e8), "network": (1.5, 1e8)}
    if f.release != "2.35.0":
        close.update(hostMem=(1.5, 1e9), cgroupMem=(1.5, 1e9))
    for key in same:
        if a[key] != b[key]:
            wrong.append(f"{key}: {a[key]}, not {b[key]}")

    def flat(v):
        return [x for e in v for x in flat(e)] if isinstance(v, list) else [v]

    for key, (factor, slack) in close.items():
        for x, y in zip(flat(a[key]), flat(b[key])):
            if not near(x, y, factor, slack):
                wrong.append(f"{key}: {a[key]}, not {b[key]}")
    for disk in a["disk"]:
        if not all(near(a["disk"][disk][k], b["disk"][disk][k], 1.2, 1) for k in b["disk"][disk]):
            wrong.append(f"disk {disk}: {a['disk'][disk]}, not {b['disk'][disk]}")
    if not 0 <= a["cpu"] <= 100:
        wrong.append(f"cpu {a['cpu']}")
    if "raylet" not in a["raylet"]["cmdline"][0] or a["cmdline"] != a["raylet"]["cmdline"]:
        wrong.append(f"cmdline {a['cmdline'][:1]}")
    return wrong


def series(text):
    """Of each name the set of its label keys, and all samples."""
    keys, samples = {}, {}
    for line in text.splitlines():
        m = re.match(r"^([A-Za-z_:][\w:]*)(\{(.*)\})? (\S+)$", line)
        if not m:
            assert line.startswith("#") or not line, f"not Prometheus' format: {line}"
            continue
        labels = dict(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', m[3] or ""))
        keys.setdefault(m[1], set()).update(k for k in labels if not k.startswith("otel_scope"))
        samples.setdefault(m[1], []).append((labels, float(m[4])))
    return keys, samples


def scrape(node):
    return series(get(node.metrics, "/metrics")[1])


def parse_with_client(f, node):
    """The official parser reads the page."""
    return _agent.python(f, """
import sys, urllib.request
from prometheus_client.parser import text_string_to_metric_families
text = urllib.request.urlopen(sys.argv[1]).read().decode()
print(len(list(text_string_to_metric_families(text))))
""", f"http://{node.ip}:{node.metrics[1]}/metrics")


def compare_metrics(f, native, stock):
    wrong = []
    (ours, values), (theirs, stock_values) = scrape(native), scrape(stock)
    for name in sorted(theirs):
        if NOT_OURS.match(name) or STOCK_RAYLET.match(name):
            continue
        if name == "ray_tasks" and name not in ours and not any(v for _, v in stock_values[name]):
            continue  # tasks that have ended: workers report them for a while only
        if name not in ours:
            wrong.append(f"{name} is missing")
        elif ours[name] != theirs[name]:
            wrong.append(f"{name} has labels {sorted(ours[name])}, not {sorted(theirs[name])}")
    total = "ray_shown_count_total"
    for name in (total, "ray_shown_gauge", "ray_shown_histogram_bucket", "ray_shown_histogram_count"):
        mine, other = ([(l["a"], l.get("le"), v) for l, v in s.get(name, [])] for s in (values, stock_values))
        if sorted(mine, key=str) != sorted(other, key=str):
            wrong.append(f"{name}: {mine}, not {other}")
    for name in ("ray_node_mem_total", "ray_node_cpu_count", "ray_node_disk_usage", "ray_node_disk_free"):
        if not near(values[name][0][1], stock_values[name][0][1], 1.2):
            wrong.append(f"{name}: {values[name]}, not {stock_values[name]}")
    note(f"{len(theirs)} names of stock, {len(ours)} of ours, not here: {', '.join(sorted(set(theirs) - set(ours)))[:600]}")
    return wrong


def beside_stock(f):
    """Keys, types and values of statistics, and names, labels and values of metrics are those of a stock node."""
    f.start_head(config={"metrics_report_interval_ms": 1000})
    stock, native = start(f, env=STOCK, resources={"stock": 1}), start(f, env=NATIVE, resources={"native": 1})
    payloads = Payloads(f)
    driver = f.driver(ACTORS.replace("where", "'under_test'"))
    pids = [int(p) for p in wait_for(lambda: re.search(r"PIDS (\d+) (\d+)", _field.read(driver.log)), 200, "the actors answer").groups()]

    def shown(node, pid):
        return [p for _, p in payloads.of(node) if any(w["pid"] == pid and w["cmdline"][0] == "ray::Shown" for w in p["workers"])][1:]

    wait_for(lambda: shown(stock, pids[0]) and shown(native, pids[1]), 60, "both nodes report the actors")
    wrong = compare_payloads(f, shown(native, pids[1])[-1], shown(stock, pids[0])[-1], pids)
    times = [p["now"] for _, p in payloads.of(native)]
    gaps = [b - a for a, b in zip(times, times[1:])]
    expect(all(4.5 < g < 6.5 for g in gaps), f"seconds between reports: {gaps}")
    for node in (stock, native):
        wait_for(lambda: "ray_shown_histogram_count" in scrape(node)[0] and "ray_component_rss_mb" in scrape(node)[0], 40, "metrics of the actor", every=1)
    parse_with_client(f, native)
    wrong += compare_metrics(f, native, stock)
    expect(not wrong, "\n".join(wrong))
    keys = _agent.python(f, """
import sys, ray
from ray._raylet import GcsClient
gcs = GcsClient(address=sys.argv[1])
for key in sorted(gcs.internal_kv_keys(b"DASHBOARD_AGENT", b"dashboard", 10)):
    print(key.decode(), gcs.internal_kv_get(key, b"dashboard", 10).decode())
""", f.address)
    mine = [line for line in keys.splitlines() if native.node_id in line]
    theirs = [line for line in keys.splitlines() if stock.node_id in line]
    form = [[re.sub(r"\d+", "N", line.replace(n.node_id, "ID")) for line in lines] for n, lines in ((native, mine), (stock, theirs))]
    expect(mine and form[0] == form[1], f"keys {mine}, not {theirs}")


if __name__ == "__main__":
    _field.run(beside_stock, limit=400)
