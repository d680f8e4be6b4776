"""Report B33: TLS. A certificate without the node's address is named, a good set works on all channels, plaintext is refused."""
import os
import re
import shutil
import subprocess
import time

import _b
import _field
from _b import note, step, wait_for
from _field import Skip, expect

DNS_ONLY = "DNS:node.field.example,DNS:*.field.example"


class Authority:
    """An own CA and the certificates that it signs."""

    def __init__(self, folder):
        if not shutil.which("openssl"):
            raise Skip("no program openssl")
        self.folder = os.path.join(folder, "tls")
        os.makedirs(self.folder)
        self.run("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=field CA",
                 "-days", "2")

    def run(self, *words):
        subprocess.run(["openssl", *words], cwd=self.folder, check=True, capture_output=True)

    def env(self, name, names):
        """The environment for a process with a certificate for these names."""
        with open(os.path.join(self.folder, f"{name}.ext"), "w") as out:
            out.write(f"subjectAltName={names}\n")
        self.run("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self.run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", f"{name}.crt",
                 "-days", "2", "-extfile", f"{name}.ext")
        path = os.path.join(self.folder, name)
        return {"RAY_USE_TLS": "1", "RAY_TLS_SERVER_CERT": f"{path}.crt", "RAY_TLS_SERVER_KEY": f"{path}.key",
                "RAY_TLS_CA_CERT": os.path.join(self.folder, "ca.crt")}


def begin(f, head_names=None):
    ca = Authority(f.temp_dir)
    good = ca.env("head", f"IP:{f.head_ip},IP:127.0.0.1,DNS:localhost")
    os.environ.update(good)  # of drivers and look-ups
    plain = f.environment
    f.environment = lambda e=None, mark="": plain({**good, **(e or {})}, mark)
    return ca


def listening(pids):
    """TCP ports on which these processes listen."""
    inodes = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in _field.read(table).splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                inodes[f"socket:[{fields[9]}]"] = int(fields[1].rsplit(":", 1)[1], 16)
    found = set()
    for pid in pids:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            try:
                found.add((pid, inodes.get(os.readlink(f"/proc/{pid}/fd/{fd}"))))
            except OSError:
                pass
    return {x for x in found if x[1]}


def good_set(f):
    ca = begin(f)
    f.start_head(seconds=120)
    node = f.start_node(num_cpus=2, resources={"n": 1}, env=ca.env("node", f"IP:127.0.0.1,DNS:localhost,IP:{_field.NET}.11"))
    expect(node.ip == f"{_field.NET}.11", node.ip)
    with step("ray health-check answers"):
        done = subprocess.run([os.path.join(f.ray_bin, "ray"), "health-check", f"--address={f.address}"], env=f.environment(),
                              capture_output=True, text=True, timeout=60)
        expect(done.returncode == 0, done.stdout + done.stderr)
    ray = _b.connect(f)
    import numpy as np

    @ray.remote(resources={"n": 0.1})
    def turned(data):
        return ray.get_runtime_context().get_node_id(), data[::-1].copy()

    with step("a task gets and gives 100 MB"):
        data = np.arange(100_000_000, dtype=np.uint8)
        node_id, back = ray.get(turned.remote(data), timeout=120)
        expect(node_id == node.node_id and (back[::-1] == data).all(), "the bytes differ")
    with step("plaintext is refused on each port of the daemon and of its workers"):
        import grpc

        pids = [node.raylet] + [p.pid for p in node.of("worker") if re.match("ray::(IDLE|turned)", p.cmdline)]
        ports = listening(pids)
        expect(any(pid == node.raylet for pid, _ in ports) and len(ports) >= 2, ports)
        for pid, port in ports:
            channel = grpc.insecure_channel(f"{node.ip}:{port}")
            call = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
            try:
                call(b"", timeout=5)
                expect(False, f"port {port} of process {pid} answers")
            except grpc.RpcError as error:
                expect(error.code() == grpc.StatusCode.UNAVAILABLE, f"port {port}: {error.code()}")
            channel.close()
    with step("and so is a client without a certificate"):
        credentials = grpc.ssl_channel_credentials(open(os.environ["RAY_TLS_CA_CERT"], "rb").read())
        channel = grpc.secure_channel(f"{node.ip}:{node.record['manager_port']}", credentials)
        call = channel.unary_unary("/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes)
        try:
            call(b"", timeout=5)
            expect(False, "it is served")
        except grpc.RpcError as error:
            expect(error.code() == grpc.StatusCode.UNAVAILABLE, error.code())
        channel.close()


def own_certificate(f):
    """The node's certificate does not list the address by which others connect to it."""
    ca = begin(f)
    f.start_head(seconds=120)
    with step("the node ends and names its address and the names in its certificate"):
        began = time.monotonic()
        env = ca.env("node", DNS_ONLY)
        node = f.launch_node(num_cpus=1, env=env)
        line = wait_for(lambda: [x for x in (f.daemon_log() + node.output).splitlines() if "node.field.example" in x], 60,
                        "a line with the certificate's names")[0]
        expect(node.ip in line and env["RAY_TLS_SERVER_CERT"] in line, line)
        note(line)
        wait_for(lambda: not node.of("raylet"), 30, "the daemon has ended")
        note(f"{time.monotonic() - began:.1f} s")


def certificate_of_the_head(f):
    """The head's certificate does not list the address by which the node connects."""
    ca = begin(f)
    f.start_head(seconds=120)
    env = ca.env("good", f"IP:127.0.0.1,IP:{_field.NET}.11")
    good = f.start_node(num_cpus=1, env=env)
    words = open(f"/proc/{good.raylet}/cmdline", "rb").read().decode().split("\0")[:-1]
    other = "127.0.2.200"
    head_port = f.address.rsplit(":", 1)[1]
    with step("the daemon names the address that it called and that the certificate lacks it"):
        log = f.log_path("daemon")
        argv = []
        for w in words:
            if w.startswith("--gcs-address="):
                w = f"--gcs-address={other}:{head_port}"  # an address of this host that is in no certificate
            if w.startswith("--raylet_socket_name=") or w.startswith("--store_socket_name="):
                w += ".2"
            if w.startswith("--node_id="):
                w = f"--node_id={2:056x}"
            if w.startswith(("--stdout_filepath=", "--stderr_filepath=")):
                w = w.split("=")[0] + "="
            argv.append(w)
        expect(any(other in w for w in argv), argv)
        f.spawn(argv, log, {**env, "RAY_gcs_rpc_server_connect_timeout_s": "5"})
        line = wait_for(lambda: [x for x in _field.read(log).splitlines() if re.search("ertificate", x)], 60,
                        "a line about the certificate")[0]
        expect(other in line, line)
        note(line)


if __name__ == "__main__":
    _field.run(good_set, own_certificate, certificate_of_the_head, limit=240)
