"""The demonstration behind demo.sh: python3 demo.py WHEEL RELEASE...

For each Ray release: a stock head without CPUs, then the main job (examples/train_qwen2_fsdp.py, two CPU ranks) on a stock
worker node and on ours, one after the other, both started by `ray start`. Ours gets its daemon through the wheel and
`raylet-c enable`, which is undone at the end, and with it the FSDP engine in place of torch's run time. Prints a line per training step, loss, checkpoint, and what each node cost.

All processes carry RAYLET_C_DEMO=<unique> in their environment; at the end those, and no others, are ended, by pid.
"""
import contextlib
import glob
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MARK = "RAYLET_C_DEMO=" + uuid.uuid4().hex
HEAD_IP, NODE_IP = "127.0.0.70", "127.0.0.71"
STEP = re.compile(r"(epoch \d+ step +\d+ loss [\d.]+ +(\d+) ms)")
RESULT = re.compile(r"^(seconds|loss|checkpoint) (.*)$")
TICKS = os.sysconf("SC_CLK_TCK")


class Failed(Exception):
    pass


def marked():
    """pid -> command line of everything that this run started, but for itself."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as f:
                if MARK.encode() not in f.read().split(b"\0"):
                    continue
            with open("/proc/%s/cmdline" % name, "rb") as f:
                found[int(name)] = f.read().decode("utf-8", "replace").split("\0")[:-1]
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def end_all():
    for signum, seconds in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
        for pid in marked():
            with contextlib.suppress(OSError):
                os.kill(pid, signum)
        until = time.monotonic() + seconds
        while marked() and time.monotonic() < until:
            time.sleep(0.1)
    return not marked()


def end_node():
    """The worker node's daemon is asked to leave; its helpers and workers go with it, the log monitor is ended after it."""
    raylet = node_raylet()
    os.kill(raylet, signal.SIGTERM)
    until = time.monotonic() + 20
    while time.monotonic() < until and os.path.exists("/proc/%d" % raylet):
        time.sleep(0.1)
    for pid, words in marked().items():
        text = " ".join(words)
        if pid == raylet or ("--node-ip-address=" + NODE_IP in text):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def environment(venv):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "RAYLET_C"))}
    env["PATH"] = os.path.join(venv, "bin") + ":" + env["PATH"]
    env["PYTHONUNBUFFERED"] = "1"
    name, value = MARK.split("=")
    env[name] = value
    return env


def run(command, env, what, timeout=180):
    done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
                          timeout=timeout)
    if done.returncode:
        raise Failed("%s ended with %d: %s\n%s" % (what, done.returncode, " ".join(command), done.stdout[-3000:]))
    return done.stdout


def free_port():
    with socket.socket() as s:
        s.bind((HEAD_IP, 0))
        return s.getsockname()[1]


def node_raylet():
    pids = [pid for pid, words in marked().items() if words and os.path.basename(words[0]) == "raylet" and "--node_ip_address=" + NODE_IP in words]
    if len(pids) != 1:
        raise Failed("found %d daemons of the node instead of one" % len(pids))
    return pids[0]


def pss_mb(pid):
    with open("/proc/%d/smaps_rollup" % pid) as f:
        return int(re.search(r"^Pss: +(\d+) kB", f.read(), re.M).group(1)) / 1024


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def job(venv, env, address, storage):
    """Runs the main job; its step lines are shown as they come. The results by name."""
    command = [venv + "/bin/python", ROOT + "/examples/train_qwen2_fsdp.py", "--cpu", "--address", address, "--storage", storage, "--epochs", "2"]
    env = dict(env, RAY_DEDUP_LOGS="0")
    process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
    results, lines, shown, times = {}, [], set(), []
    for line in process.stdout:
        lines = (lines + [line])[-60:]
        step, result = STEP.search(line), RESULT.match(line)
        if step and step.group(1) not in shown:  # head and node share a session folder, and so both forward each line
            shown.add(step.group(1))
            times.append(int(step.group(2)))
            print("    " + step.group(1), flush=True)
        if result:
            results[result.group(1)] = result.group(2)
    if process.wait() or set(results) != {"seconds", "loss", "checkpoint"} or not times:
        raise Failed("the job ended with %d:\n%s" % (process.returncode, "".join(lines)))
    results["step"] = statistics.median(times)
    return results


def on_node(venv, env, address, name, keep):
    print("  %s node" % name, flush=True)
    began = time.monotonic()
    run([venv + "/bin/ray", "start", "--address=" + address, "--node-ip-address=" + NODE_IP, "--num-cpus=4", "--object-store-memory=200000000",
         "--disable-usage-stats", "--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"], env, "ray start of the node")
    cost = {"ray start": time.monotonic() - began}
    time.sleep(3)
    raylet = node_raylet()
    cost["memory"] = pss_mb(raylet)
    before = cpu_seconds(raylet)
    results = job(venv, env, address, os.path.join(keep, name))
    cost["job"] = float(results["seconds"])
    cost["step"] = results["step"]
    cost["cpu"] = cpu_seconds(raylet) - before
    print("    loss %s\n    checkpoint %s" % (results["loss"], results["checkpoint"]), flush=True)
    end_node()
    return cost


def demonstrate(wheel, release):
    venv = os.path.join(ROOT, ".venv-" + release)
    env = environment(venv)
    top = tempfile.mkdtemp(prefix="rc.", dir="/tmp")  # short: socket paths have 107 bytes
    keep = tempfile.mkdtemp(prefix="raylet-c-demo-")
    print("Ray %s" % release, flush=True)
    costs = {}
    enabled = False
    try:
        run([venv + "/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--force-reinstall", wheel], env, "pip install of the wheel")
        run([venv + "/bin/raylet-c", "disable"], env, "raylet-c disable")
        port = free_port()
        address = "%s:%d" % (HEAD_IP, port)
        run([venv + "/bin/ray", "start", "--head", "--node-ip-address=" + HEAD_IP, "--port=%d" % port, "--num-cpus=0", "--temp-dir=" + top,
             "--disable-usage-stats", "--include-dashboard=false", "--min-worker-port=0", "--max-worker-port=0", "--dashboard-agent-listen-port=0"],
            env, "ray start of the head")
        costs["stock"] = on_node(venv, env, address, "stock", keep)
        print("  " + run([venv + "/bin/raylet-c", "enable"], env, "raylet-c enable").strip(), flush=True)
        enabled = True
        costs["ours"] = on_node(venv, env, address, "our", keep)
    except (Failed, subprocess.TimeoutExpired) as failure:
        for path in sorted(glob.glob(top + "/session_latest/logs/raylet*")):
            with open(path, errors="replace") as f:
                text = f.read()[-1500:]
            if text.strip():
                print("---- %s\n%s" % (path, text))
        raise Failed("Ray %s: %s" % (release, failure))
    finally:
        if not end_all():
            print("demo: processes are left: %s" % marked(), file=sys.stderr)
        if enabled:
            run([venv + "/bin/raylet-c", "disable"], env, "raylet-c disable")
        shutil.rmtree(top, ignore_errors=True)
    return costs


ROWS = [("ray start", "`ray start` of the node, s", "%.1f"), ("memory", "daemon's memory when idle, MB (PSS)", "%.1f"),
        ("job", "the job, s", "%.1f"), ("step", "a training step, ms (median)", "%.0f"),
        ("cpu", "daemon's CPU time during the job, s", "%.2f")]


def table(all_costs):
    print("\n%-12s%-40s%10s%10s%8s" % ("Ray", "what it cost", "stock", "ours", "ratio"))
    for release, costs in all_costs.items():
        for key, text, form in ROWS:
            stock, ours = costs["stock"][key], costs["ours"][key]
            print("%-12s%-40s%10s%10s%8s" % (release, text, form % stock, form % ours, "%.2f" % (ours / stock) if stock else "-"))


def interrupted(*_):
    raise KeyboardInterrupt


def main():
    signal.signal(signal.SIGTERM, interrupted)  # what Ctrl-C does: everything is ended on the way out
    wheel, releases = sys.argv[1], sys.argv[2:]
    try:
        table({release: demonstrate(wheel, release) for release in releases})
    except Failed as failure:
        sys.exit("demo: %s" % failure)
    except KeyboardInterrupt:
        end_all()
        sys.exit(130)


main()
