"""raylet_c/train/transport.py without torch: the environment's defaults, and what NCCL's log says. test/data/nccl-*.log are logs of
NCCL_DEBUG=INFO, NCCL_DEBUG_SUBSYS=INIT: h200 was seen (NCCL 2.28.9, two ranks that name different hosts), the others are put together
from logs in public reports (aws-ofi-nccl issue 584 and NCCL issue 1597 among them)."""
import importlib.util
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
number, failed = 0, False


def load():
    """The module anew: it keeps what it was told."""
    spec = importlib.util.spec_from_file_location("transport", os.path.join(HERE, "../raylet_c/train/transport.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(sentence, want, got):
    global number, failed
    number += 1
    failed = failed or want != got
    print("%s %d - %s" % ("ok" if want == got else "not ok", number, sentence))
    if want != got:
        print("# wanted %r\n# got    %r" % (want, got))


def log(name):
    with open(os.path.join(HERE, "data", name)) as f:
        return f.read()


def parses():
    t = load()
    check("sockets between two hosts", ("none", "TCP sockets on eth0", False), t.parse(log("nccl-h200.log")))
    efa = "EFA by Libfabric, GPUDirect RDMA"
    check("EFA with GPUDirect, NVLink within", ("P2P/CUMEM", efa, True), t.parse(log("nccl-efa.log")))
    check("EFA without GPUDirect, shared memory within", ("SHM/direct", "EFA by AWS Libfabric", True), t.parse(log("nccl-efa-g6.log")))
    tcp = "TCP by Libfabric"
    check("the plugin with libfabric's tcp is not EFA", ("SHM/direct", tcp, False), t.parse(log("nccl-ofi-tcp.log")))
    whole = log("nccl-h200.log")
    early = whole[:whole.index(" via ")]
    check("before the first channel nothing is known", None, t.parse(early))
    check("an empty log", None, t.parse(""))
    check("several networks are all told", "IB, GPUDirect RDMA and TCP sockets on eth0",
          t.parse(whole + "x NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n")[1])


def defaults():
    text = "NCCL_SOCKET_IFNAME==eth0\nFI_PROVIDER=efa\n@transport=efa\n@logs=/nowhere\n@why=no plugin = none\n"
    for name in ("NCCL_SOCKET_IFNAME", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS"):
        os.environ.pop(name, None)
    os.environ["FI_PROVIDER"] = "tcp"
    t = load()
    t.apply(text)
    check("a default is set", "=eth0", os.environ.get("NCCL_SOCKET_IFNAME"))
    check("the user's own stays", "tcp", os.environ.get("FI_PROVIDER"))
    check("what the daemon says is kept", ("efa", "no plugin = none"), (t.settings["transport"], t.settings["why"]))
    check("NCCL writes its log", ("INFO", "INIT", "/nowhere/nccl-%p.log"), tuple(os.environ.get(n) for n in t.NCCL_LOG))
    check("its path is this process's", "/nowhere/nccl-%d.log" % os.getpid(), t.log_path())
    for name in t.NCCL_LOG:
        os.environ.pop(name)
    os.environ["NCCL_DEBUG"] = "WARN"
    load().apply(text)
    check("but not when the user set NCCL_DEBUG", None, os.environ.get("NCCL_DEBUG_FILE"))
    os.environ.pop("NCCL_DEBUG")


class Told:
    def __init__(self, t):
        self.lines = []
        t.say = self.lines.append


def reports():
    with tempfile.TemporaryDirectory() as folder:
        t = load()
        told = Told(t)
        t.apply("@transport=efa\n@logs=%s\n" % folder)
        with open(t.log_path(), "w") as f:
            f.write(log("nccl-h200.log"))
        t.watch()
        want = "training transport: within the node NCCL: none; between nodes NCCL: TCP sockets on eth0"
        check("the log is read and told", want, told.lines[0])
        check("EFA that NCCL does not use is a warning", True, "EFA is configured on this node and NCCL does not use it" in told.lines[1])
        with open(os.path.join(folder, "transport-%d" % os.getpid())) as f:
            check("the daemon finds it in a file", "NCCL: none\nNCCL: TCP sockets on eth0\n", f.read())
        with open(t.log_path(), "w") as f:
            f.write(log("nccl-efa.log"))
        told.lines.clear()
        t.watch()
        check("EFA in use has no warning", 1, len(told.lines))


def settings():
    for name in ("NCCL_PROTO", "FI_EFA_USE_HUGE_PAGE", "FI_EFA_FORK_SAFE", "NCCL_NET"):
        os.environ.pop(name, None)
    t = load()
    told = Told(t)
    t.apply("NCCL_NET=AWS Libfabric\nFI_EFA_USE_HUGE_PAGE=0\n@transport=efa\n@require=efa\n")
    t.check_settings()
    check("our own defaults are no risk", [], told.lines)
    os.environ.update(NCCL_PROTO="^LL,LL128")
    t.check_settings()
    check("protocols that are taken out are no risk", [], told.lines)
    os.environ.update(NCCL_PROTO="Simple,LL128", FI_EFA_USE_HUGE_PAGE="1", FI_EFA_FORK_SAFE="0")
    t.check_settings()
    check("each risky setting is warned of", 3, len(told.lines))
    os.environ["NCCL_NET"] = "Socket"
    try:
        t.check_settings()
        refused = ""
    except RuntimeError as error:
        refused = str(error)
    check("what takes required EFA away is refused", "EFA is required on this node (--require-efa), and NCCL_NET=Socket takes it away", refused)


def sockets():
    import socket

    t = load()
    before = t.listening()
    with socket.socket() as one, socket.socket() as everywhere, socket.socket(socket.AF_INET6) as six:
        one.bind(("127.0.44.9", 0))
        everywhere.bind(("0.0.0.0", 0))
        six.bind(("::1", 0))
        for s in (one, everywhere, six):
            s.listen(1)
        want = {one.getsockname(), six.getsockname()[:2]}
        check("the addresses at which this process listens", want, t.listening() - before)
    check("one rank of a node tells, the others do not", (True, None), (bool(t.first_of_node("a:1")), load().first_of_node("a:1")))


for part in (parses, defaults, reports, settings, sockets):
    part()
print("1..%d" % number)
sys.exit(failed)
