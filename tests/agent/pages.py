"""Pages of the native agent: health whatever the head does, the log folder and nothing else."""
import os
import signal
import socket
import statistics

import _agent
import _field
from _agent import expect, get, note, start, wait_for

SECRET = "agent-pages-secret"


def no_python_agent(f):
    """No process of Ray's own dashboard agent runs on the node."""
    f.start_head()
    node = start(f)
    wait_for(lambda: get(node.agent, "/api/local_raylet_healthz")[0] == 200, 5, "the health page answers")
    expect(not node.of("dashboard_agent"), f"runs: {_field.describe(node.of('dashboard_agent'))}")


def health(f):
    """Health pages answer at once also while the GCS is stopped, on the node's address and on 127.0.0.1."""
    f.start_head()
    node = start(f)
    pages = {"/api/local_raylet_healthz": "success"}
    if f.release != "2.35.0":
        pages["/api/healthz"] = "raylet: success\ngcs: success (no local gcs)"

    def ask(count):
        took = []
        for i in range(count):
            for path, want in pages.items():
                for address in (node.agent, ("127.0.0.1", node.agent[1])):
                    status, text, seconds = get(address, path)
                    expect((status, text) == (200, want), f"{path} at {address}: {status} {text!r}")
                    took.append(seconds * 1000)
        return took

    ask(1)
    os.kill(f.gcs, signal.SIGSTOP)
    try:
        took = ask(100)
    finally:
        os.kill(f.gcs, signal.SIGCONT)
    note(f"health page while the GCS is stopped: median {statistics.median(took):.2f} ms, longest {max(took):.1f} ms of {len(took)}")
    expect(statistics.median(took) < 5, f"median {statistics.median(took)} ms")
    expect(max(took) < 1000, f"longest {max(took)} ms")
    if f.release == "2.35.0":
        expect(get(node.agent, "/api/healthz")[0] == 404, "2.35.0 has no /api/healthz")
    expect(get(node.agent, "/api/local_raylet_healthz", method="POST")[0] == 405, "POST is not refused")
    expect(get(node.agent, "/nothing")[0] == 404, "a page that is not there")


def wedged(f):
    """A daemon that does not run does not look well: no answer comes."""
    f.start_head()
    node = start(f)
    os.kill(node.raylet, signal.SIGSTOP)
    try:
        get(node.agent, "/api/local_raylet_healthz", seconds=2)
        raise _field.Wrong("a stopped daemon answered")
    except (socket.timeout, TimeoutError):
        pass
    finally:
        os.kill(node.raylet, signal.SIGCONT)
    expect(get(node.agent, "/api/local_raylet_healthz")[0] == 200, "no answer after it went on")


def logs(f):
    """Files and folders of the log folder are served; links, names with dot-dot and other paths are not."""
    f.start_head()
    node = start(f)
    folder = f.session_logs()
    with open(os.path.join(f.temp_dir, "secret.txt"), "w") as out:
        out.write(SECRET)
    os.symlink(os.path.join(f.temp_dir, "secret.txt"), os.path.join(folder, "link.log"))
    os.symlink("own.log", os.path.join(folder, "inner.log"))
    os.symlink(f.temp_dir, os.path.join(folder, "folder"))
    os.mkdir(os.path.join(folder, "below"))
    big = os.urandom(64) * 40000
    for name, data in (("own.log", b"a line\n"), ("below/a b.out", b"below"), ("big.bin", big), ("<b>.log", b"odd")):
        with open(os.path.join(folder, name), "wb") as out:
            out.write(data)
    os.mkfifo(os.path.join(folder, "fifo.log"))
    expect(get(node.agent, "/logs/own.log")[:2] == (200, "a line\n"), "own.log")
    expect(get(node.agent, "/logs/below/a%20b.out")[:2] == (200, "below"), "a file of a folder")
    expect(get(node.agent, "/logs/big.bin")[1] == big.decode(errors="replace"), "a large file")
    for path, names in (("/logs", ("own.log", "below/", "&lt;b&gt;.log")), ("/logs/", ("own.log",)), ("/logs/below", ("a b.out",))):
        status, text, _ = get(node.agent, path)
        expect(status == 200 and all(n in text for n in names), f"{path}: {status} {text[:300]}")
        expect("<b>" not in text, "a name is not escaped")
        expect("link.log" not in text and "secret" not in text, f"{path} lists a link")
    names = ["link.log", "inner.log", "folder/secret.txt", "fifo.log", "../../secret.txt", "%2e%2e/%2e%2e/secret.txt", "..%2f..%2fsecret.txt",
             "./../../secret.txt", "//etc/passwd", "/etc/passwd", "below/../../../secret.txt", "own.log/", "none", f"folder/../{f.temp_dir}/secret.txt"]
    for name in names:
        status, text, seconds = get(node.agent, "/logs/" + name)
        if name == "own.log/":
            continue
        expect(status in (400, 403, 404) and SECRET not in text and "root:" not in text, f"{name}: {status} {text[:100]}")
    expect("was refused" in f.daemon_log(), "no line in the log tells of a refusal")


def browsers(f):
    """2.60.0 refuses browsers; 2.35.0 serves them."""
    f.start_head()
    node = start(f)
    want = 200 if f.release == "2.35.0" else 403
    for headers in ({"User-Agent": "Mozilla/5.0"}, {"Origin": "http://elsewhere"}, {"Sec-Fetch-Mode": "cors"}):
        expect(get(node.agent, "/logs", headers)[0] == want, f"{headers}: {get(node.agent, '/logs', headers)[0]}")
    expect(get(node.agent, "/logs")[0] == 200, "others are served")


def token(f):
    """With a token the log pages want it, health does not (2.60.0)."""
    if f.release == "2.35.0":
        raise _field.Skip("2.35.0 has no token mode")
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "t" * 40}
    os.environ.update(env)
    _field._cluster.environment = lambda plain=_field._cluster.environment: {**plain(), **env}
    f.start_head(env=env)
    node = start(f, env={**_agent.NATIVE, **env})
    expect(get(node.agent, "/api/local_raylet_healthz")[0] == 200, "health wants a token")
    expect(get(node.agent, "/logs")[0] == 401, "no token")
    expect(get(node.agent, "/logs", {"Authorization": "Bearer wrong"})[0] == 403, "a wrong token")
    for headers in ({"Authorization": "Bearer " + "t" * 40}, {"X-Ray-Authorization": "Bearer " + "t" * 40},
                    {"Cookie": "a=b; ray-authentication-token=" + "t" * 40 + "; c=d"}):
        expect(get(node.agent, "/logs", headers)[0] == 200, f"{headers} is refused")


if __name__ == "__main__":
    _field.run(no_python_agent, health, wedged, logs, browsers, token, limit=120)
