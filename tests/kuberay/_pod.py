"""Pods without a kubelet: a network namespace each, and for every container a mount, UTS and pid namespace in which its command is
process 1. A container sees the host's programs, but a /tmp, /dev/shm, /etc/hosts, /etc/resolv.conf and /etc/profile of its own. Needs root.
"""
import contextlib
import os
import signal
import subprocess
import sys
import time

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))

# Runs as process 1 before the command takes its place. The repository is bound back, since it may lie below /tmp.
SETUP = """set -e
mount -t tmpfs none /mnt
mkdir /mnt/repository /mnt/pod
mount --bind "$POD_REPOSITORY" /mnt/repository
mount --bind "$POD_FOLDER" /mnt/pod
mount --bind /mnt/pod/tmp /tmp
mkdir -p "$POD_REPOSITORY"
mount --bind /mnt/repository "$POD_REPOSITORY"
mount -t tmpfs -o size="$POD_SHM" none /dev/shm
mount --bind /mnt/pod/hosts /etc/hosts
mount --bind /mnt/pod/profile /etc/profile
mount --bind /mnt/pod/resolv.conf /etc/resolv.conf
hostname "$POD_NAME"
cd /tmp
unset POD_REPOSITORY POD_FOLDER POD_SHM POD_NAME
exec "$@"
"""


def call(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def why_not():
    """Why pods cannot be made here; None when they can."""
    if os.geteuid() != 0:
        return "needs root"
    for program in ("ip", "unshare", "nsenter", "wget", "bash", "hostname"):
        if subprocess.run(["which", program], stdout=subprocess.DEVNULL).returncode:
            return f"there is no {program}"
    pair = ["ip", "link", "add", "kube0", "type", "veth", "peer", "name", "kube1"]
    probe = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", *pair],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return f"namespaces cannot be made: {probe.stdout.strip()}" if probe.returncode else None


class Network:
    """Two network namespaces, one for the head's pod and one for a worker's, joined by a pair of devices."""

    def __init__(self):
        self.names = [f"kube{os.getpid()}{end}" for end in "hw"]
        self.ips = ["10.47.0.1", "10.47.0.2"]
        self.name_server = None

    def __enter__(self):
        try:
            for name in self.names:
                call("ip", "netns", "add", name)
            devices = [name + "e" for name in self.names]
            call("ip", "link", "add", devices[0], "netns", self.names[0], "type", "veth",
                 "peer", "name", devices[1], "netns", self.names[1])
            for name, device, ip, peer in zip(self.names, devices, self.ips, reversed(self.ips)):
                for words in (("link", "set", "lo", "up"), ("addr", "add", ip + "/24", "dev", device), ("link", "set", device, "up"),
                              ("route", "add", "default", "via", peer)):
                    call("ip", "-n", name, *words)
        except subprocess.CalledProcessError as e:
            self.__exit__()
            raise RuntimeError(f"{e.cmd}: {e.stdout}") from e
        return self

    def serve_names(self, names):
        """A name server at the head's end, as the cluster's would be. names: {host: ip}"""
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_dns.py")
        self.name_server = subprocess.Popen(
            ["ip", "netns", "exec", self.names[0], sys.executable, script, self.ips[0], *(f"{host}={ip}" for host, ip in names.items())],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert self.name_server.stdout.readline() == b"ready\n", "the name server does not start"

    def __exit__(self, *_):
        if self.name_server:
            self.name_server.kill()
            self.name_server.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)


def process_table():
    """{pid: (parent, state, inode of the pid namespace, command line)}"""
    table = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/stat", errors="replace") as f:
                fields = f.read().rpartition(")")[2].split()
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().replace(b"\0", b" ").decode(errors="replace")
            namespace = None
            with contextlib.suppress(OSError):  # a zombie has none any more
                namespace = os.readlink(f"/proc/{pid}/ns/pid")
            table[int(pid)] = (int(fields[1]), fields[0], namespace, words)
    return table


class Container:
    """A running container. `init` is the pid of its process 1, seen from the host."""

    def __init__(self, pod, words, env, log):
        self.pod, self.env, self.log = pod, env, log
        setup_env = {**env, "POD_REPOSITORY": ROOT, "POD_FOLDER": pod.folder, "POD_SHM": pod.shm, "POD_NAME": pod.name}
        with open(log, "ab") as out:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", pod.netns, "unshare", "--mount", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "bash", "-c", SETUP, "setup", *words], env=setup_env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                start_new_session=True)
        self.init = wait_for(self._find_init, 20, "the container has a process 1")

    def _find_init(self):
        if self.process.poll() is not None:
            return -1
        return next((pid for pid, (parent, *_) in process_table().items() if parent == self.process.pid), None)

    def output(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def signal(self, signum):
        os.kill(self.init, signum)

    def wait(self, seconds):
        """The exit status of process 1; None: it still runs."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def enter(self):
        return ["nsenter", "-t", str(self.init), "--mount", "--net", "--pid", "--uts", "--root", "--wd=/tmp"]

    def exec(self, words, seconds=60, **options):
        """A command inside, as by `kubectl exec`; returns its completed process."""
        return subprocess.run([*self.enter(), *words], env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=seconds, **options)

    def start(self, words, log):
        """The same, without waiting: a Popen whose output goes to `log`."""
        with open(log, "wb") as out:
            return subprocess.Popen([*self.enter(), *words], env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT)

    def processes(self):
        """{pid: (state, command line)} of all inside; zombies by their parents."""
        table = process_table()
        namespace = table[self.init][2] if self.init in table else None
        inside = {pid for pid, row in table.items() if namespace and row[2] == namespace}
        inside |= {pid for pid, row in table.items() if row[1] == "Z" and row[0] in inside}
        return {pid: (table[pid][1], table[pid][3]) for pid in inside}

    def end(self):
        with contextlib.suppress(ProcessLookupError):
            if self.process.poll() is None:
                os.kill(self.init if self.init > 0 else self.process.pid, signal.SIGKILL)
        self.process.wait(20)


class Pod:
    def __init__(self, name, netns, folder, name_server, ip, shm):
        self.name, self.netns, self.folder, self.shm = name, netns, folder, str(shm)
        os.makedirs(os.path.join(folder, "tmp/home"))
        os.chmod(os.path.join(folder, "tmp"), 0o1777)
        self.write("hosts", f"127.0.0.1 localhost\n{ip} {name}\n")
        self.write("resolv.conf", f"nameserver {name_server}\n")
        self.write("profile", "")  # an image's login shell keeps the PATH of the image
        self.containers = []

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as f:
            f.write(text)

    def path(self, name):
        """Where the host has the pod's /tmp/<name>."""
        return os.path.join(self.folder, "tmp", name)

    def run(self, name, words, env):
        container = Container(self, words, env, os.path.join(self.folder, f"{name}-{len(self.containers)}.log"))
        self.containers.append(container)
        return container

    def end(self):
        for container in self.containers:
            container.end()


def wait_for(probe, seconds, what, every=0.1):
    deadline = time.monotonic() + seconds
    while True:
        value = probe()
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(every)
