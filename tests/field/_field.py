"""What the field-report scripts share: a head and nodes with options of their own, drivers, waiting, TAP.

A script is a list of scenarios: functions that take a `Field`, and raise (see `expect`) when something is wrong. Each runs in
a process of its own and in a time limit; whatever it leaves running is ended, and is an error of its own.
"""
import argparse
import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
import traceback

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "..", "accept", "cases")
# Loopback addresses of the clusters: others on the host may use another net.
NET = os.environ.get("FIELD_NET", "127.0.1")


def _load(name):
    spec = importlib.util.spec_from_file_location(name, os.path.join(CASES, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_proc = _load("_proc")
_cluster = _load("_cluster")


def describe(procs):
    """Names of processes without the long paths before them."""
    return ", ".join(f"{p.pid} ({' '.join(os.path.basename(w) for w in p.cmdline.split()[:4])[:80]})" for p in procs)


free_port = _cluster.free_port


class Skip(Exception):
    """The scenario cannot be tried here; the text says why."""


class Wrong(Exception):
    """What was seen is not the right behaviour."""


def expect(condition, text):
    if not condition:
        raise Wrong(text)


def note(text):
    print(f"# {text}", flush=True)


def wait_for(probe, seconds, what, every=0.1):
    """The first true value of probe(), asked until `seconds` are over."""
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise Wrong(f"not within {seconds} s: {what}")
        time.sleep(every)


def read(path):
    try:
        with open(path, errors="replace") as f:
            return f.read()
    except OSError:
        return ""


def start_time(pid):
    """Clock ticks since boot, or None when there is no such process (a zombie is none)."""
    p = _proc.look(pid)
    return p.start if p else None


def zombies(parents):
    """Pids of unreaped children of these processes."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = read(f"/proc/{name}/stat")
            fields = stat[stat.rfind(")") + 1 :].split()
            if fields and fields[0] == "Z" and int(fields[1]) in parents:
                found.append(int(name))
    return found


class Node:
    """A started node: how it was started, what it printed, its processes."""

    def __init__(self, field, process, log, ip, ports):
        self.field, self.process, self.log, self.ip, self.ports = field, process, log, ip, ports
        self.node_id = None

    @property
    def output(self):
        return read(self.log)

    def processes(self):
        """All that runs of this node: its session, what bears its mark, all descendants."""
        return _proc.owned({self.process.pid}, self.log + "@")

    @property
    def raylet(self):
        """Pid of the daemon: found once, then kept."""
        if not hasattr(self, "_raylet"):
            self._raylet = wait_for(lambda: self.of("raylet"), 30, "the node's daemon runs")[0].pid
        return self._raylet

    def of(self, kind):
        """Processes of the node by kind: raylet, dashboard_agent, runtime_env_agent, log_monitor, worker."""
        tests = {
            "raylet": lambda c: os.path.basename(c.split(" ")[0]) == "raylet",
            "dashboard_agent": lambda c: "ray::DashboardAgent" in c or "/dashboard/agent.py" in c,
            "runtime_env_agent": lambda c: "ray::RuntimeEnvAgent" in c or "/runtime_env/agent/main.py" in c,
            "log_monitor": lambda c: "/log_monitor.py" in c,
            "worker": lambda c: c.startswith("ray::") and "Agent" not in c.split(" ")[0] or "/workers/default_worker.py" in c,
        }
        found = [(p, next((k for k in tests if tests[k](p.cmdline)), None)) for p in self.processes()]
        return [p for p, k in found if k == kind]


class Field:
    """A cluster of the script's own: start_head(), then start_node() as often as wanted."""

    def __init__(self, args, temp_dir):
        self.ray_bin, self.stock, self.temp_dir = args.ray_bin, args.stock, temp_dir
        self.python = os.path.join(args.ray_bin, "python")
        self.release = args.release
        self.head_ip = f"{NET}.10"
        self.address = None
        self.nodes = []
        self.count = 0

    # -- processes ----------------------------------------------------------------------------
    def environment(self, env=None, mark=""):
        e = _cluster.environment()
        e["PATH"] = self.ray_bin + os.pathsep + e.get("PATH", "")
        e["NODE_ACCEPTANCE_DIR"] = self.temp_dir  # marks all that descends from it
        e["FIELD_MARK"] = mark
        if self.stock:
            e["RAYLET_C"] = "0"
        e.update(env or {})
        return {k: v for k, v in e.items() if v is not None}

    def spawn(self, command, log, env=None, **options):
        """Starts a program (a list, or a line for the shell) in a session of its own; its output goes to the file `log`."""
        with open(log, "ab") as out:
            process = subprocess.Popen(
                command, shell=isinstance(command, str), env=self.environment(env, log + "@"), cwd=self.temp_dir,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **options)
        with open(os.path.join(self.temp_dir, "sids"), "a") as f:
            f.write(f"{process.pid}\n")
        return process

    def log_path(self, name):
        self.count += 1
        return os.path.join(self.temp_dir, f"{name}{self.count}.out")

    def driver(self, code, env=None, log=None, init=""):
        """Runs Python code as a driver that is connected as `ray`; returns its process, with the path of its output in .log.

        `init` holds further arguments of ray.init: `_node_ip_address='...'` attaches the driver to the node of that address.
        """
        log = log or self.log_path("driver")
        path = log + ".py"
        with open(path, "w") as f:
            f.write(f"import os, sys, time, signal, ray\nray.init(address={self.address!r}, log_to_driver=False, {init})\n{code}")
        process = self.spawn([self.python, path], log, env)
        process.log = log
        return process

    # -- head and nodes -----------------------------------------------------------------------
    def start_head(self, config=None, env=None, options=(), seconds=120):
        """`config` is Ray's system config; it reaches every process of the cluster."""
        port, dashboard, agent, client = (free_port() for _ in range(4))
        self.address = f"{self.head_ip}:{port}"
        self.dashboard = dashboard
        command = ["ray", "start", "--head", "--num-cpus=0", f"--node-ip-address={self.head_ip}", f"--port={port}",
                   f"--temp-dir={self.temp_dir}", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
                   f"--ray-client-server-port={client}", "--object-store-memory=300000000", "--disable-usage-stats",
                   "--min-worker-port=0", "--max-worker-port=0", *options]
        if config:
            command.append("--system-config=" + json.dumps(config))
        self.head_log = self.log_path("head")
        self.head = self.spawn(command, self.head_log, {"RAYLET_C": None, **(env or {})})
        self.alive(1, seconds, self.head, self.head_log)
        self.gcs = [p.pid for p in _proc.owned({self.head.pid}) if "gcs_server" in p.cmdline.split(" ")[0]][0]
        # On a host of its own the log monitor of the head would not see the files of a node.
        _proc.end([p for p in _proc.owned({self.head.pid}) if "log_monitor" in p.cmdline])

    def alive(self, count, seconds, process=None, log=None):
        """Records of the nodes that are ALIVE, once there are `count`."""
        probe = subprocess.run(
            [self.python, os.path.join(CASES, "_alive.py"), self.address, str(count), str(seconds)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment())
        if probe.returncode:
            printed = (log and read(log)[-1500:]) or ""
            raise Wrong(f"no {count} nodes ALIVE within {seconds} s: {printed} {probe.stderr[-500:]}")
        return json.loads(probe.stdout)

    @property
    def raylet_c(self):
        """The `raylet-c` command: that of FIELD_RAYLET_C, of the environment, or of the quick build."""
        for path in (os.environ.get("FIELD_RAYLET_C", ""), os.path.join(self.ray_bin, "raylet-c"),
                     os.path.join(HERE, "../../build/raylet-c")):
            if os.access(path, os.X_OK):
                return os.path.abspath(path)
        raise Skip("no raylet-c command: build it first")

    def node_command(self, ip, num_cpus=4, resources=None, options=(), store=300_000_000, program=("ray", "start")):
        """The command line of a node; `program` may be that of `raylet-c start`, which gets the environment's package."""
        command = [*program, f"--address={self.address}", f"--node-ip-address={ip}", f"--num-cpus={num_cpus}",
                   f"--object-store-memory={store}", "--disable-usage-stats",
                   "--resources=" + json.dumps({"under_test": 1000, **(resources or {})}), *options]
        if not any("agent-listen-port" in o for o in options):
            command.append(f"--dashboard-agent-listen-port={free_port()}")
        if not any("worker-port" in o for o in options):
            command += ["--min-worker-port=0", "--max-worker-port=0"]
        if os.path.basename(program[0]) == "raylet-c":
            command.remove("--disable-usage-stats")
            if not any(o.startswith("--ray-dir") for o in program):
                command.append(f"--ray-dir={os.path.dirname(self.ray_bin)}")
            daemon = os.path.join(os.path.dirname(self.raylet_c), "raylet")
            if os.path.exists(daemon):  # a build's; one that a wheel installed finds its own
                command.append(f"--daemon={daemon}")
        return command

    def launch_node(self, ip=None, env=None, wrap=(), **how):
        """Runs the start command of a node and returns at once. `wrap` goes before the command."""
        ip = ip or f"{NET}.{11 + len(self.nodes)}"
        log = self.log_path("node")
        command = [*wrap, *self.node_command(ip, **how)]
        return Node(self, self.spawn(command, log, env), log, ip, None)

    def start_node(self, seconds=120, **how):
        """A node that is ALIVE: see launch_node and node_command for the options."""
        before = {n["node_id"] for n in self.alive(0, 5)}
        node = self.launch_node(**how)
        record = None
        deadline = time.monotonic() + seconds
        while not record:
            if node.process.poll() not in (None, 0) or time.monotonic() > deadline:
                raise Wrong(f"the node did not start (status {node.process.poll()}): {node.output[-1500:]}")
            record = next((n for n in self.alive(0, 5) if n["node_id"] not in before), None)
        node.node_id = record["node_id"]
        node.record = record
        self.nodes.append(node)
        return node

    def session_logs(self):
        return os.path.join(self.temp_dir, "session_latest", "logs")

    def log_sizes(self):
        """How far the logs of node daemons go now: for daemon_log()."""
        folder = self.session_logs()
        return {n: len(read(os.path.join(folder, n))) for n in os.listdir(folder) if n.startswith("raylet")}

    def daemon_log(self, since=None):
        """All that node daemons logged since log_sizes() (the head's own, a stock one, among them)."""
        folder = self.session_logs()
        names = [n for n in sorted(os.listdir(folder)) if n.startswith("raylet")]
        return "\n".join(read(os.path.join(folder, n))[(since or {}).get(n, 0) :] for n in names)


# -- the script -----------------------------------------------------------------------------------
def _owned(temp_dir):
    sids = {int(line) for line in read(os.path.join(temp_dir, "sids")).split()}
    return _proc.owned(sids, temp_dir)


def _in_child(scenario, args, temp_dir, limit):
    """Runs a scenario in a process of its own; returns its status and text."""
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        verdict = ("ok", "")
        try:
            os.setsid()
            os.close(r)
            scenario(Field(args, temp_dir))
        except Skip as e:
            verdict = ("skip", str(e))
        except Wrong as e:
            verdict = ("not ok", str(e))
        except BaseException:
            verdict = ("not ok", traceback.format_exc()[-2000:])
        os.write(w, json.dumps(verdict).encode()[:60000])
        sys.stdout.flush()
        os._exit(0)
    os.close(w)
    deadline = time.monotonic() + limit
    with open(r, "rb", buffering=0) as pipe:
        import select

        ready = select.select([pipe], [], [], limit)[0]
        data = pipe.read(65536) if ready else b""
    while os.waitpid(pid, os.WNOHANG)[0] == 0:
        if time.monotonic() > deadline or data:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            break
        time.sleep(0.05)
    if not data:
        return "not ok", f"no result within {limit} s" if time.monotonic() >= deadline else "the scenario's process died"
    return tuple(json.loads(data))


def _keep(temp_dir, folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name in os.listdir(temp_dir):
        path = os.path.join(temp_dir, name)
        if name.endswith(".out") or name.endswith(".py"):
            shutil.copy(path, folder)
        elif name.startswith("session_2") and os.path.isdir(os.path.join(path, "logs")):
            shutil.copytree(os.path.join(path, "logs"), os.path.join(folder, name), symlinks=True)


def run(*scenarios, limit=240):
    """The main program of a script: parses the options, runs the scenarios, prints TAP, exits."""
    p = argparse.ArgumentParser()
    p.add_argument("--ray-bin", default=os.path.dirname(sys.executable), metavar="DIR", help="folder of the `ray` program")
    p.add_argument("--stock", action="store_true", help="the stock node (RAYLET_C=0), for comparison")
    p.add_argument("--only", metavar="PATTERN", help="run the scenarios whose name matches")
    p.add_argument("--logs", metavar="DIR", help="keep the output and logs of failed scenarios there")
    args = p.parse_args()
    args.ray_bin = os.path.abspath(args.ray_bin)
    python = os.path.join(args.ray_bin, "python")
    if os.path.dirname(sys.executable) != args.ray_bin and os.path.exists(python):
        os.execv(python, [python, *sys.argv])  # drivers must have the Ray of the head
    args.release = subprocess.run([python, "-c", "import ray; print(ray.__version__)"], capture_output=True, text=True,
                                  check=True).stdout.strip()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # an inherited "ignore" would reach the workers
    for s in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, lambda *_: sys.exit(143))
    chosen = [s for s in scenarios if not args.only or re.search(args.only, s.__name__)]
    report = os.path.basename(sys.argv[0]).removesuffix(".py")
    print(f"TAP version 13\n1..{len(chosen)}\n# Ray {args.release}, {'stock node' if args.stock else 'node as installed'}",
          flush=True)
    failed = 0
    for number, scenario in enumerate(chosen, 1):
        temp_dir = _cluster.new_temp_dir()
        shm = set(os.listdir("/dev/shm"))
        began = time.monotonic()
        try:
            status, text = _in_child(scenario, args, temp_dir, getattr(scenario, "limit", limit))
        finally:
            _proc.end(_owned(temp_dir))
            left = _proc.end(_owned(temp_dir), grace=0.2)
        if left:
            status, text = "not ok", f"{text} left running: {describe(left)}"
        if status == "not ok" and args.logs:
            _keep(temp_dir, os.path.join(args.logs, f"{report}.{scenario.__name__}"))
        shutil.rmtree(temp_dir, ignore_errors=True)
        new = {n for n in set(os.listdir("/dev/shm")) - shm if n.startswith(("plasma", "raylet", "rc"))}
        if new and status == "ok":
            note(f"new in /dev/shm: {', '.join(sorted(new))}")
        line = f"{'not ok' if status == 'not ok' else 'ok'} {number} - {report}/{scenario.__name__}"
        if status == "skip":
            line += f" # SKIP {text}"
        print(line, flush=True)
        if status == "not ok":
            failed += 1
            print("\n".join("# " + t for t in text.splitlines()), flush=True)
        note(f"{time.monotonic() - began:.0f} s")
    sys.exit(1 if failed else 0)
