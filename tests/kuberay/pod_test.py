"""The pods that KubeRay makes of our manifests, run against our node without Kubernetes: init container, start, probes, work, what the
autoscaler is told, drain and exit status. Every release, with `ray start` (our daemon enabled) and with `raylet-c start`.

usage: pod_test.py --env .venv-2.60.0 [--raylet-c build/raylet-c] [--only PATTERN] [--logs DIR]      (root; two minutes a scenario)

The commands, environments and probes are those of pod_rules.py; the Ray of the environment must be enabled for the scenarios of
`ray start`. CPUs and memory of the manifests are scaled down to this machine; GPUs are there in name only.
"""
import argparse
import copy
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

import yaml

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import _pod  # noqa: E402
import pod_rules  # noqa: E402
from _pod import wait_for  # noqa: E402

SCALE = {"cpu": "2", "memory": "8Gi", "hugepages-2Mi": None}
POD_NAME = "raylet-c-gpu-worker-x7k2p"
KUBERAY = {"2.35.0": "1.3", "2.60.0": "1.7"}  # each release under the rules of its time


def note(text):
    print(f"# {text}", flush=True)


def load(name):
    with open(os.path.join(HERE, "../../deploy/kuberay", name), encoding="utf-8") as f:
        cluster = yaml.safe_load(f)
    for group in [cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]]:
        resources = group["template"]["spec"]["containers"][0]["resources"]
        for part in ("limits", "requests"):
            scaled = {k: SCALE.get(k, v) for k, v in resources[part].items()}
            resources[part] = {k: v for k, v in scaled.items() if v is not None}
    return cluster


class Scenario:
    def __init__(self, args, release, mode, folder, network):
        self.args, self.release, self.mode, self.folder, self.network = args, release, mode, folder, network
        self.cluster = load(f"raycluster-{release}{'-raylet-c' if mode == 'raylet-c' else ''}.yaml")
        self.group = self.cluster["spec"]["workerGroupSpecs"][0]
        self.secrets = {self.cluster["metadata"]["name"]: {"auth_token": "token-of-the-secret-0123456789abcdef"}}
        self.pods = []
        network.serve_names({f"{self.cluster['metadata']['name']}-head-svc.default.svc.cluster.local": network.ips[0]})
        self.head = self.make_pod(None, "raylet-c-head-abcde", 0)
        self.worker = self.make_pod(self.group, POD_NAME, 1)

    def make_pod(self, group, name, end):
        """A pod of KubeRay, and the place where it runs."""
        kuberay = KUBERAY[self.release]
        spec = pod_rules.build_pod(self.cluster, group, kuberay)
        shm = next(v["emptyDir"]["sizeLimit"] for v in spec["spec"]["volumes"] if v["name"] == "shared-mem")
        pod = _pod.Pod(name, self.network.names[end], os.path.join(self.folder, name[-5:]), self.network.ips[0], self.network.ips[end],
                       pod_rules.quantity(shm))
        pod.spec = spec
        self.pods.append(pod)
        return pod

    def environment(self, pod, container):
        """The image's environment, then the container's own."""
        path = [os.path.abspath(os.path.join(self.args.env, "bin")), os.path.dirname(self.args.raylet_c), "/usr/local/bin", "/usr/bin",
                "/bin", "/usr/sbin", "/sbin"]
        env = {"PATH": ":".join(path), "HOME": "/tmp/home", "LANG": "C.UTF-8", "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1",
               "PYTHONWARNINGS": "ignore", "PYTHONDONTWRITEBYTECODE": "1"}
        env.update(pod_rules.environment(container, pod.name, "default", pod.spec["metadata"]["labels"], self.secrets))
        return env

    def run(self, pod, container):
        env = self.environment(pod, container)
        words = [pod_rules.expand(w, env) for w in container["command"] + container["args"]]
        return pod.run(container["name"], words, env)

    def ask(self, *words, seconds=180):
        done = self.head_run.exec(["python", os.path.join(HERE, "_driver.py"), *words], seconds)
        found = re.search(r"^RESULT (.*)$", done.stdout, re.M)
        assert found, f"_driver.py {words}: {done.stdout[-2000:]}"
        return json.loads(found.group(1))

    def probe(self, run, probe):
        """(success, seconds) of one probe as the kubelet makes it."""
        began = time.monotonic()
        if "exec" in probe:
            try:
                ok = run.exec(probe["exec"]["command"], probe["timeoutSeconds"]).returncode == 0
            except subprocess.TimeoutExpired:
                ok = False
        else:  # the kubelet asks the pod's address from outside
            url = f"http://{self.network.ips[1]}:{probe['httpGet']['port']}{probe['httpGet']['path']}"
            wget = ["wget", "-q", "-T", str(probe["timeoutSeconds"]), "--tries", "1", "-O", "/dev/null", url]
            ok = subprocess.run(["ip", "netns", "exec", self.network.names[0], *wget], stderr=subprocess.DEVNULL).returncode == 0
        return ok, time.monotonic() - began

    def start_head(self):
        """A stock head gives up after 30 s, which a busy machine may need; the kubelet would start it again, and so is it here."""
        for _ in range(3):
            self.head_run = run = self.run(self.head, self.head.spec["spec"]["containers"][0])
            wait_for(lambda: "Ray runtime started." in run.output() or run.wait(0) is not None, 180, "the head starts")
            if run.wait(0) is None:
                return
            note(f"the head ended with {run.wait(0)} while it started: {run.output().strip().splitlines()[-1]}")
        raise AssertionError("the head does not start")

    # -- the course of a pod ------------------------------------------------------------------
    def wait_in_init(self):
        """The init container waits while there is no head, and ends once there is one."""
        init = self.run(self.worker, self.worker.spec["spec"]["initContainers"][0])
        wait_for(lambda: "the head does not answer" in init.output(), 180, "a first try of the init container fails")
        assert init.wait(0) is None, "the init container did not wait"
        self.start_head()
        status = init.wait(180)
        assert status == 0 and "the head answers" in init.output(), (
            f"init container: {status}: {init.output()[-1000:]} {self.head_run.output()[-500:]}")

    def start(self):
        container = self.worker.spec["spec"]["containers"][0]
        began = time.monotonic()
        self.run_worker = run = self.run(self.worker, container)
        wait_for(lambda: "Ray runtime started." in run.output() or run.wait(0) is not None, 120,
                 "the start command says that the node is up", 0.01)
        assert run.wait(0) is None, f"ended with {run.wait(0)}: {run.output()[-2000:]}"
        note(f"from the container's start to \"Ray runtime started.\": {time.monotonic() - began:.2f} s")
        with open(f"/proc/{run.init}/cmdline", "rb") as f:
            note("process 1: " + " ".join(f.read().decode().split("\0")[:4]).replace(_pod.ROOT, ""))

    def ready_and_alive(self):
        """Readiness within the kubelet's patience; then liveness, ten times, each within its timeout."""
        spec = self.worker.spec["spec"]["containers"][0]
        ready, live = spec["readinessProbe"], spec["livenessProbe"]
        patience = ready["initialDelaySeconds"] + ready["periodSeconds"] * ready["failureThreshold"]
        wait_for(lambda: self.probe(self.run_worker, ready)[0], patience, "the readiness probe succeeds", 0.5)
        results = [self.probe(self.run_worker, live) for _ in range(10)]
        assert all(ok for ok, _ in results), results
        note(f"liveness probe: at most {max(s for _, s in results) * 1000:.0f} ms of {live['timeoutSeconds'] * 1000}")

    def registered(self):
        """The head has the pod's name, group, address and resources."""
        state = self.ask("look")
        node = next(n for n in state["nodes"] if not n["head"])
        assert node["alive"] and node["ip"] == self.network.ips[1], node
        assert node["instance"] == POD_NAME and node["type"] == "gpu", node
        assert node["resources"]["GPU"] == 4 and node["resources"]["CPU"] == 2 and node["resources"]["memory"] == 8 * 2**30, node
        assert state["autoscaler"][POD_NAME]["type"] == "gpu" and state["autoscaler"][POD_NAME]["total"]["GPU"] == 4, state
        first = state["autoscaler"][POD_NAME]["idle_ms"]
        wait_for(lambda: self.ask("look")["autoscaler"][POD_NAME]["idle_ms"] > max(first, 0), 30,
                 "the autoscaler sees the node idle, and longer")

    def works(self):
        result = self.ask("work")
        assert result["host"] == POD_NAME and len(result["gpus"]) == 1 and result["cuda"] in ("0", "1", "2", "3"), result
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]  # of this machine: the shell of the pod may not go above it
        assert result["files"] == 65536 or most < 65536, result
        assert result["fi"] == "efa", result

    def tools(self):
        """raylet-c's own words inside the container."""
        info = self.run_worker.exec(["raylet-c", "info", "--json"])
        assert info.returncode == 0, info.stdout
        node = json.loads(info.stdout)[0]
        assert node["state"] == "ALIVE" and node["address"] == self.network.ips[1] and node["ray_version"] == self.release, node
        assert node["daemon"] == "raylet-c" and node["started_by"] == ("raylet-c start" if self.mode == "raylet-c" else "ray start"), node
        assert node["ports"]["dashboard_agent_listen"] == 52365 and node["ports"]["metrics_export"] == 8080, node
        health = self.run_worker.exec(["raylet-c", "health-check", "--ray-dir", os.path.abspath(self.args.env)])
        assert health.returncode == 0, health.stdout

    def orphans(self):
        """What loses its parent inside comes to process 1, which must reap it. (`ray start` does not.)"""
        self.run_worker.exec(["bash", "-c", "for i in 1 2 3; do (sleep 0.2 &); done"])
        time.sleep(0.3)  # they have ended; no event says so
        wait_for(lambda: not [p for p in self.run_worker.processes().values() if p[0] == "Z"], 5, "no zombie is left")

    def drain(self):
        """SIGTERM (after preStop, where there is one) while a task runs: it may end, no other starts, and the pod ends with its status."""
        log = os.path.join(self.folder, "long.log")
        driver = self.head_run.start(["python", os.path.join(HERE, "_driver.py"), "long", "6"], log)
        wait_for(lambda: os.path.exists(self.worker.path("task-runs")), 90, "the long task runs")
        run, spec = self.run_worker, self.worker.spec["spec"]["containers"][0]
        processes = set(run.processes())
        began = time.monotonic()
        if "lifecycle" in spec:
            done = run.exec(spec["lifecycle"]["preStop"]["exec"]["command"], 60)
            note(f"preStop: {done.returncode}, {done.stdout.strip()!r} after {time.monotonic() - began:.1f} s")
            assert done.returncode == 0, done.stdout
        if run.wait(0) is None:
            run.signal(signal.SIGTERM)
        status = run.wait(45)
        took = time.monotonic() - began
        note(f"ended with status {status} {took:.1f} s after the signal")
        assert driver.wait(60) == 0, _read(log)
        result = json.loads(re.search(r"^RESULT (.*)$", _read(log), re.M).group(1))
        assert result.get("result", {}).get("host") == POD_NAME, f"the task did not end as it should: {result}"
        assert not result["late_ran"], "a task started on a node that drains"
        # `ray start` ends with 1 also after a wanted end; ours passes on how the node went
        assert status == (0 if self.mode == "raylet-c" else 1), f"status {status}: {run.output()[-1500:]}"
        assert 2 < took < 40, took  # the task had 6 s to go; the deadline of the drain was not waited for
        wait_for(lambda: not [p for p in processes if p in _pod.process_table()], 5, "nothing of the pod is left")
        death = next(n for n in self.ask("look")["nodes"] if not n["head"])
        note(f"the head says: {death['death']!r}")
        assert not death["alive"], death

    def crash(self):
        """A daemon that is killed ends the pod at once, with a status that says so."""
        run = self.run_worker
        daemon = [p for p, (_, words) in run.processes().items() if os.path.basename(words.split(" ")[0]) == "raylet"]
        os.kill(min(daemon), signal.SIGKILL)
        status = run.wait(15)
        assert status == 1, f"status {status}: {run.output()[-1500:]}"
        if self.mode == "raylet-c":  # `ray start` of 2.35.0 loses its last words
            assert "Some Ray subprocesses exited unexpectedly" in run.output(), run.output()[-1500:]

    def stop(self):
        """`raylet-c stop` inside ends the container in good order."""
        done = self.run_worker.exec(["raylet-c", "stop"])
        status = self.run_worker.wait(15)
        # the exec dies with the container when process 1 is quicker than its last words
        assert status == 0 and done.returncode in (0, 137, -9), (
            f"{done.returncode} {done.stdout!r}, container {status}: {self.run_worker.output()[-800:]}")

    def leave_without_head(self):
        """A cluster that is deleted: the head is gone, and the worker does not wait for it until the kubelet's patience ends."""
        self.head_run.end()
        began = time.monotonic()
        self.run_worker.signal(signal.SIGTERM)
        status = self.run_worker.wait(40)
        note(f"without a head: ended with status {status} {time.monotonic() - began:.1f} s after the signal")
        assert status == 0 and time.monotonic() - began < 25, self.run_worker.output()[-1500:]

    def all(self):
        self.wait_in_init()
        self.start()
        self.ready_and_alive()
        self.registered()
        self.works()
        self.tools()
        if self.mode == "raylet-c":
            self.orphans()
        self.drain()
        # the kubelet starts the container again, in the same pod
        self.start()
        self.crash()
        if self.mode == "raylet-c":
            self.start()
            self.stop()
            self.start()
            self.leave_without_head()


def _read(path):
    with open(path, errors="replace") as f:
        return f.read()


def keep_logs(folder, target):
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    for top, _, files in os.walk(folder):
        for name in files:
            if name.endswith((".log", ".out", ".err", ".txt")):
                source = os.path.join(top, name)
                shutil.copy(source, os.path.join(target, os.path.relpath(source, folder).replace("/", "_")[-200:]))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--env", required=True, help="an environment with Ray, our daemon enabled in it")
    p.add_argument("--raylet-c", default=os.path.join(HERE, "../../build/raylet-c"), help="the command, its daemon beside it")
    p.add_argument("--only", default=".", help="scenarios whose name matches")
    p.add_argument("--logs", help="where logs of a failed scenario go")
    args = p.parse_args()
    args.raylet_c = os.path.abspath(args.raylet_c)
    release = subprocess.run([os.path.join(args.env, "bin/python"), "-c", "import ray; print(ray.__version__)"], check=True, text=True,
                             stdout=subprocess.PIPE).stdout.strip()
    modes = [m for m in ("ray", "raylet-c") if re.search(args.only, m)]
    print(f"TAP version 13\n1..{len(modes)}", flush=True)
    reason, failed = _pod.why_not(), 0
    for number, mode in enumerate(modes, 1):
        sentence = f"kuberay/{release} {mode} start: waits, starts, is probed, works, drains and ends as a pod of KubeRay {KUBERAY[release]}"
        if reason:
            print(f"ok {number} - {sentence} # SKIP {reason}", flush=True)
            continue
        folder, scenario = tempfile.mkdtemp(prefix="rk.", dir="/tmp"), None
        try:
            with _pod.Network() as network:
                try:
                    scenario = Scenario(args, release, mode, folder, network)
                    scenario.all()
                    print(f"ok {number} - {sentence}", flush=True)
                except Exception:
                    failed += 1
                    print(f"not ok {number} - {sentence}")
                    print("\n".join("# " + line for line in traceback.format_exc().splitlines()), flush=True)
                    if args.logs:
                        keep_logs(folder, os.path.join(args.logs, f"{release}-{mode}"))
                finally:
                    for pod in scenario.pods if scenario else []:
                        pod.end()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
