"""Services of the native agent through the head: logs, stack traces, runtime envs, jobs, drivers' output, its helpers' ends."""
import json
import os
import re
import urllib.parse
import urllib.request

import _agent
import _field
from _agent import NATIVE, expect, note, start, wait_for

WORK = """
@ray.remote(resources={"under_test": 1})
class Talker:
    def talk(self):
        print("spoken by an actor")
        print("complaint of an actor", file=sys.stderr)
        return os.getpid(), ray.get_runtime_context().get_worker_id()

    def nap(self):
        time.sleep(600)

talker = Talker.remote()
pid, worker = ray.get(talker.talk.remote())
print("TALKER", pid, worker, talker._actor_id.hex(), flush=True)
talker.nap.remote()
time.sleep(900)
"""


def talker(f, **how):
    program = f.driver(WORK, **how)
    m = wait_for(lambda: re.search(r"TALKER (\d+) (\w+) (\w+)", _field.read(program.log)), 120, f"the actor talks: {_field.read(program.log)[-800:]}")
    return program, int(m[1]), m[2], m[3]


def ask(f, path, **query):
    url = f"http://127.0.0.1:{f.dashboard}{path}?" + urllib.parse.urlencode(query)
    with urllib.request.urlopen(url, timeout=60) as reply:
        return reply.read().decode(errors="replace")


def through_the_head(f):
    """`ray logs`, `ray list runtime-envs`, stack traces and flame graphs of the dashboard, with files that are there and that are not."""
    f.start_head(env={"RAY_DASHBOARD_ENABLE_PROFILING": "1"})
    node = start(f)
    _, pid, worker, actor = talker(f)
    name = wait_for(lambda: next((n for n in os.listdir(f.session_logs()) if n.endswith(f"-{pid}.out")), None), 20, "the worker's file")
    listed = json.loads(ask(f, "/api/v0/logs", node_id=node.node_id, glob="*"))["data"]["result"]
    expect(any(name in names for names in listed.values()), f"{name} is not in {listed}")
    expect("spoken by an actor" in ask(f, "/api/v0/logs/file", node_id=node.node_id, filename=name, lines=100), "the file's text")
    expect("spoken by an actor" in ask(f, "/api/v0/logs/file", actor_id=actor, lines=100), "the actor's text")
    with open(os.path.join(f.session_logs(), "long.log"), "w") as out:
        out.write("".join(f"line {i}\n" for i in range(50000)))
    text = ask(f, "/api/v0/logs/file", node_id=node.node_id, filename="long.log", lines=3)
    expect(text.endswith("line 49997\nline 49998\nline 49999\n") and len(text) < 100, f"three lines: {text[:200]!r}")
    text = ask(f, "/api/v0/logs/file", node_id=node.node_id, filename="long.log", lines=-1)
    expect("line 0\n" in text and text.count("\n") >= 50000, f"all lines: {len(text)}")
    for name in ("none.log", "../../secret"):
        try:
            text = ask(f, "/api/v0/logs/file", node_id=node.node_id, filename=name)
        except urllib.error.HTTPError as e:
            text = str(e.code)
        note(f"{name}: {text[:150]}")
        expect("line 0" not in text, name)
    text = ask(f, "/worker/traceback", pid=pid, ip=node.ip, node_id=node.node_id, native=0)
    installed = os.path.exists(os.path.join(f.ray_bin, "py-spy"))
    expect("nap (" in text if installed else "py-spy is not installed" in text, f"stack trace: {text[:500]}")
    text = ask(f, "/worker/cpu_profile", pid=pid, ip=node.ip, node_id=node.node_id, duration=1, format="raw", native=0)
    expect("py-spy is not installed" in text or "Failed" not in text, f"profile: {text[:500]}")
    envs = json.loads(ask(f, "/api/v0/runtime_envs"))
    expect(envs["result"] and not envs["data"].get("partial_failure_warning"), f"{envs}")


def jobs(f):
    """A job whose driver runs on the node: its log is read through the head, and it is stopped; the helpers are started for it."""
    f.start_head()
    node = start(f)
    out = _agent.python(f, """
import sys, time
from ray.job_submission import JobSubmissionClient
c = JobSubmissionClient(sys.argv[1])
one = c.submit_job(entrypoint="echo words of a job", entrypoint_resources={"under_test": 1}, runtime_env={"env_vars": {"A": "b"}})
two = c.submit_job(entrypoint="sleep 600", entrypoint_resources={"under_test": 1})
end = time.time() + 200
while str(c.get_job_status(one)) not in ("SUCCEEDED", "FAILED") and time.time() < end:
    time.sleep(0.5)
print(c.get_job_status(one), c.get_job_logs(one))
while str(c.get_job_status(two)) not in ("RUNNING", "FAILED") and time.time() < end:
    time.sleep(0.5)
print(c.stop_job(two))
while str(c.get_job_status(two)) not in ("STOPPED", "FAILED") and time.time() < end:
    time.sleep(0.5)
print(c.get_job_status(two))
""", f"http://127.0.0.1:{f.dashboard}", seconds=300)
    note(out.replace("\n", " | "))
    expect("SUCCEEDED" in out and "words of a job" in out, out)
    expect("STOPPED" in out, out)
    expect("job agent started" in f.daemon_log(), "no job agent was started")


def output_reaches_drivers(f):
    """Under `raylet-c start` the daemon sends workers' lines to their driver, once, and no log monitor runs."""
    f.start_head()
    port = _field.free_port()
    node = f.start_node(env=dict(NATIVE), program=(f.raylet_c, "start"), options=[f"--metrics-export-port={port}"])
    expect(not node.of("log_monitor"), "Ray's log monitor runs")
    log = f.log_path("driver")
    program = f.log_path("program") + ".py"
    with open(program, "w") as out:
        out.write(f"import os, sys, time, ray\nray.init(address={f.address!r})\n{WORK}")
    f.spawn([f.python, program], log, env={"RAY_DEDUP_LOGS": "0"})

    def text():
        return re.sub(r"\x1b\[[0-9;]*m", "", _field.read(log))

    pid = wait_for(lambda: re.search(r"TALKER (\d+)", text()), 120, "the actor talks")[1]
    for words in ("spoken by an actor", "complaint of an actor"):
        line = f"(Talker pid={pid}, ip={node.ip}) {words}"
        wait_for(lambda: line in text(), 30, f"{line!r} at the driver, which printed: {text()[-1500:]}")
        expect(text().count(line) == 1, f"{line!r} came {text().count(line)} times")


if __name__ == "__main__":
    _field.run(through_the_head, jobs, output_reaches_drivers, limit=400)
