"""Which network trainers use: the defaults of the environment for it, and one line that says what NCCL or gloo really took.

The node daemon looks at the machine and says in RAYLET_C_TRAIN_ENV, line by line, NAME=value: defaults for the environment, and
@name=value for this module: transport (what NCCL is expected to take between nodes: "efa" or "tcp"), why (why not EFA, which is
there), require ("efa"), logs (a folder). Where the user has set a variable, in a runtime environment or in the script, it stays.

NCCL has no call that tells its transport, but its log does, for each channel. So it writes its log of initialisations into the log
folder, unless the user set NCCL_DEBUG or its kin, and a thread reads it until the first channels stand. What it found goes to
stderr, from one rank a node, and into a file that the daemon makes a metric of. gloo is judged by the address that it listens at.
"""
import functools
import logging
import os
import re
import socket
import sys
import threading
import time

logger = logging.getLogger("raylet_c.train")
NCCL_LOG = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
READ_LIMIT = 16 << 20  # bytes of NCCL's log
WATCH_SECONDS = 3600
settings = {}  # what the daemon said behind @


def install():
    """Sets the defaults and waits for process groups. Never fails: training goes on without it."""
    try:
        apply(os.environ.get("RAYLET_C_TRAIN_ENV", ""))
        wrap()
    except Exception as error:
        logger.warning("the transport of this worker is not watched: %s: %s", type(error).__name__, error)


def apply(text):
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name.startswith("@"):
            settings[name[1:]] = value
        elif name:
            os.environ.setdefault(name, value)
            settings.setdefault("defaults", {})[name] = value
    if settings.get("logs") and not any(name in os.environ for name in NCCL_LOG):
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT", NCCL_DEBUG_FILE=os.path.join(settings["logs"], "nccl-%p.log"))


def wrap():
    import torch.distributed as dist

    stock = dist.init_process_group

    @functools.wraps(stock)
    def init_process_group(*args, **kwargs):
        check_settings()
        before = listening()
        result = stock(*args, **kwargs)
        try:
            begin(before)
        except Exception as error:
            logger.warning("the transport of this worker is not known: %s: %s", type(error).__name__, error)
        return result

    for module in (dist, dist.distributed_c10d):
        if module.init_process_group is stock:
            module.init_process_group = init_process_group


def check_settings():
    """What the user set that EFA makes risky is kept, with a warning; what takes required EFA away is refused."""
    if settings.get("transport") != "efa":
        return
    wanted, used = settings.get("defaults", {}).get("NCCL_NET"), os.environ.get("NCCL_NET")
    if settings.get("require") == "efa" and wanted and used != wanted:
        raise RuntimeError("EFA is required on this node (--require-efa), and NCCL_NET=%s takes it away" % used)
    proto = os.environ.get("NCCL_PROTO", "")
    risks = {
        "NCCL_PROTO=%s: LL and LL128 need an order of bytes that EFA does not promise" % proto: "LL" in proto.upper() and proto[:1] != "^",
        "FI_EFA_USE_HUGE_PAGE=1: processes that fork run out of huge pages": os.environ.get("FI_EFA_USE_HUGE_PAGE", "0") != "0",
        "FI_EFA_FORK_SAFE=0: a fork may end this process": os.environ.get("FI_EFA_FORK_SAFE", "1") == "0",
    }
    for text in [text for text, there in risks.items() if there]:
        say("warning: " + text)


def begin(before):
    import torch.distributed as dist

    kinds = str(dist.get_backend_config())
    if "nccl" in kinds and "NCCL_DEBUG_FILE" in os.environ:
        threading.Thread(target=watch, name="raylet-c transport", daemon=True).start()
    elif "nccl" in kinds:
        loaded = plugins()
        say("NCCL_DEBUG is the user's own, so the transport is in its log; network plugin loaded: %s" % (loaded or "none yet"))
    elif "gloo" in kinds:
        where = ", ".join(interface_of(a) for a in sorted(listening() - before)) or "an interface not known"
        report("gloo: TCP on " + where, "gloo: TCP on " + where)
    elif "raylet_c" in kinds:
        report("shared memory", "none")


def plugins():
    with open("/proc/self/maps") as f:
        return ", ".join(sorted({line.split()[-1] for line in f if re.search(r"/libnccl-net[^/]*\.so", line)}))


# ---- NCCL's log ----

def log_path():
    path = os.environ["NCCL_DEBUG_FILE"]
    return path.replace("%p", str(os.getpid())).replace("%h", socket.gethostname())


def parse(text):
    """(within, between, efa) of the channels that NCCL has so far, None without any. efa: EFA moves data between nodes."""
    vias = re.findall(r" via (P2P|SHM|NET|COLLNET|CollNet)/(\S[^\n]*)", text)
    if not vias:
        return None
    within = sorted({"%s/%s" % (kind, rest.split("/")[0]) for kind, rest in vias if kind in ("P2P", "SHM")})
    networks = {rest.split("/")[0] for kind, rest in vias if kind == "NET"}
    direct = any("GDR" in rest for kind, rest in vias if kind == "NET")
    provider = re.findall(r"NET/OFI Selected [Pp]rovider is (\w+)", text)
    socket_on = re.findall(r"NET/Socket : Using \[0\](\S+?):", text)
    efa = "efa" in provider[-1:] and any("Libfabric" in name for name in networks)
    names = []
    for name in sorted(networks):
        if "Libfabric" in name:
            names.append("%s by %s%s" % (provider[-1].upper() if provider else "?", name, ", GPUDirect RDMA" if direct else ""))
        elif name == "Socket":
            names.append("TCP sockets%s" % (" on " + socket_on[-1] if socket_on else ""))
        else:
            names.append(name + (", GPUDirect RDMA" if direct else ""))
    return " and ".join(within) or "none", " and ".join(names) or "none", efa


def watch():
    """Until two looks in a row see the same channels: they are connected one after the other."""
    pause, end, last = 0.3, time.monotonic() + WATCH_SECONDS, None
    while time.monotonic() < end:
        time.sleep(pause)
        pause = min(pause * 1.3, 5)
        try:
            with open(log_path(), errors="replace") as f:
                found = parse(f.read(READ_LIMIT))
        except OSError:
            continue
        last, before = found, last
        if found and found == before:
            within, between, efa = found
            report("NCCL: " + within, "NCCL: " + between, between == "none" or efa)
            return


# ---- gloo ----

def listening():
    """Addresses at which this process listens, as (address, port); all-interfaces ones are left out."""
    own, found = set(), set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink("/proc/self/fd/" + fd))
        except OSError:
            pass  # closed meanwhile
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        try:
            with open("/proc/self/net/" + name) as f:
                rows = [line.split() for line in f][1:]
        except OSError:
            continue
        for row in rows:
            if row[3] == "0A" and "socket:[%s]" % row[9] in own:
                address, port = row[1].split(":")
                words = [bytes.fromhex(address[i:i + 8])[::-1] for i in range(0, len(address), 8)]
                if any(b"".join(words)):
                    found.add((socket.inet_ntop(family, b"".join(words)), int(port, 16)))
    return found


def interface_of(pair):
    """gloo was asked for an interface by name; the address is what it really took."""
    name = os.environ.get("GLOO_SOCKET_IFNAME")
    return "%s (%s)" % (pair[0], name) if name else pair[0]


# ---- telling ----

@functools.lru_cache(None)
def first_of_node(group):
    """One of the group's ranks on this host: who takes an abstract socket's name, which goes with the process. Ranks are not numbered
    within the node yet when Ray makes the process group."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind("\0raylet-c transport %d %s" % (os.getuid(), group))
    except OSError:
        return None
    return lock


def say(text):
    group = "%s:%s" % (os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT"))
    if "MASTER_PORT" not in os.environ or first_of_node(group):
        sys.stderr.write("raylet-c: %s\n" % text)  # Ray Train of 2.60.0 doubles what print() writes
        sys.stderr.flush()


def report(within, between, efa=True):
    say("training transport: within the node %s; between nodes %s" % (within, between))
    if settings.get("transport") == "efa" and not efa:
        say("warning: EFA is configured on this node and NCCL does not use it; its log is %s" % log_path())
    elif settings.get("why"):
        say("warning: EFA is there and not used: %s (raylet-c doctor)" % settings["why"])
    if settings.get("logs"):
        path = os.path.join(settings["logs"], "transport-%d" % os.getpid())
        with open(path + ".new", "w") as f:
            f.write("%s\n%s\n" % (within, between))
        os.replace(path + ".new", path)
