"""The prefork server: a warm Python process that forks Ray workers for the node daemon.

The daemon runs this file as a script (its text is inside the daemon) with these descriptors: 3, a SOCK_SEQPACKET socket to
the daemon; 4 and 5, the daemon's stdout and stderr, which workers start with; 6, this file. Its arguments: "full", or
"light" (imports nothing that may make threads); more modules to import; behind `--` the worker command without what
differs between workers; then padding, so that there is room for a whole command line. RAY_JOB_ID is eight random
characters that no job has.

It serves as soon as it has imported what a worker's script imports; the rest follows between requests.

A worker must not be told from one that was executed: what an exec resets is reset here, by hand, in `become_worker`.
So before a fork this process has one thread, draws no Ray id, opens no connection and keeps no signal handler.

Messages are fields separated by NUL. To the daemon: "ready", threads, each environment variable that the imports looked
at; "warm", the same, when nothing is left to import; "forked", request id, pid; "failed", request id, text; "unfit", text.
From the daemon: request id, mark, group (0 or 1), OOM score or "", niceness, working directory or "", number of words, the
words, the environment.

Only the standard library is used, and no name of it that an older Python lacks: 3.9 and later.
"""
import ast
import builtins
import collections
import contextlib
import ctypes
import functools
import gc
import importlib
import importlib.util
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
import types
from importlib.machinery import SourceFileLoader

CONTROL, OUT, ERR, SOURCE = 3, 4, 5, 6
RLIMIT_RTTIME = 15
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15
TITLE = "rc-prefork"
# Imported on the way to the first result, besides what the worker's script names itself; those that are missing are skipped.
MORE = (
    "argparse", "gettext", "ray.core.generated.usage_pb2", "ray._common.usage.usage_lib", "ray._private.usage.usage_lib",
    "ray._private.function_manager", "ray._private.worker", "ray.util.scheduling_strategies", "ray.exceptions",
    "ray.util.serialization_addons",
)
# Imported by every worker when it packs its first result. They make threads while they are loaded, unless told not to.
PACKING = (
    "pydantic", "pydantic.fields", "ray._common.pydantic_compat", "ray._private.pydantic_compat", "starlette.datastructures",
    "ray._private.arrow_serialization", "numpy", "pyarrow", "pyarrow.json",
)
# OpenBLAS and OpenMP take the number of their threads from here, Arrow's allocator whether to have one.
THREADS = {"OMP_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
OPENBLAS_SETTERS = (
    "scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_", "openblas_set_num_threads",
)
libc = ctypes.CDLL(None, use_errno=True)


class Unfit(Exception):
    """This Ray cannot be forked without a difference; the text says why."""


def imports_of(path):
    """The import statements at the top level of a script, as code."""
    with open(path, "rb") as f:
        tree = ast.parse(f.read(), path)
    tree.body = [n for n in tree.body if isinstance(n, (ast.Import, ast.ImportFrom))]
    return compile(tree, path, "exec")


def import_one(name):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
    except Exception as error:  # half of it may stay in sys.modules, and a worker's own import would find that
        traceback.print_exc()
        raise Unfit(f"{name} cannot be imported: {error!r}") from error


class Watched:
    """Notes the names of the environment variables that are looked at inside a `with` block. One that only turned up while
    somebody went through all of them does not count: fsspec copies them all, to look for its own."""

    def __init__(self):
        self.seen = set()
        self.listed = collections.deque()  # names that an iteration gave, and that were not looked up since

    def __enter__(self):
        kind = type(os.environ)
        self.plain = look_up, go_through = kind.__getitem__, kind.__iter__

        def look(environ, key):
            if self.listed and self.listed[0] == key:  # items() and dict(os.environ) look all up in this order
                self.listed.popleft()
            elif isinstance(key, str):
                self.listed.clear()
                self.seen.add(key)
            return look_up(environ, key)

        def each(environ):
            for key in go_through(environ):
                self.listed.append(key)
                yield key

        kind.__getitem__, kind.__iter__ = look, each

    def __exit__(self, *_):
        kind = type(os.environ)
        kind.__getitem__, kind.__iter__ = self.plain


class NoDrawnIds:
    """Ray's core makes its ids with one generator a process, seeded when the first is drawn: a process that drew one before a
    fork would have all its children draw the same. Ray's libraries draw some when they are loaded, for their actor classes:
    inside a `with` block those come from the system."""

    def __enter__(self):
        self.module = sys.modules["ray.actor"]
        self.of_ray = of_ray = self.module.ActorClassID

        class ActorClassID(of_ray):
            @classmethod
            def from_random(cls):
                return of_ray(os.urandom(len(of_ray.nil().binary())))

        self.module.ActorClassID = ActorClassID

    def __exit__(self, *_):
        self.module.ActorClassID = self.of_ray


def check_ids():
    """Two children must not draw the same id."""
    drawn = []
    for _ in range(2):
        out, into = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(into, sys.modules["ray._raylet"].WorkerID.from_random().binary())
            os._exit(0)
        os.close(into)
        drawn.append(os.read(out, 64))
        os.close(out)
        os.waitpid(child, 0)
    if len(drawn[0]) < 28 or drawn[0] == drawn[1]:
        raise Unfit("its imports drew an id, which all workers would draw again")


class FewThreads:
    """Libraries that are loaded inside a `with` block make no threads."""

    def __enter__(self):
        self.before = {k: os.environ.get(k) for k in THREADS}
        os.environ.update(THREADS)

    def __exit__(self, *_):
        for k, v in self.before.items():
            if v is None:
                del os.environ[k]
            else:
                os.environ[k] = v


def set_threads(n):
    """What OMP_NUM_THREADS=n would have done, had it been there when the libraries were loaded."""
    with open("/proc/self/maps") as f:
        paths = {line.split()[-1] for line in f if "openblas" in line}
    for path in paths:
        library = ctypes.CDLL(path)
        for name in OPENBLAS_SETTERS:
            if hasattr(library, name):
                getattr(library, name)(n)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(n)


def follow_omp_num_threads():
    """The libraries were loaded with one thread. Ray sets OMP_NUM_THREADS to the CPUs of a task before it runs user code."""
    utils = sys.modules["ray._private.utils"]
    of_ray = utils.set_omp_num_threads_if_unset
    if os.environ.get("OMP_NUM_THREADS", "1") != "1":
        try:
            set_threads(int(os.environ["OMP_NUM_THREADS"].split(",")[0]))
        except ValueError:
            pass  # OpenMP ignores such a value too

    @functools.wraps(of_ray)
    def set_omp_num_threads_if_unset():
        changed = of_ray()
        if changed and os.environ.get("OMP_NUM_THREADS", "1") != "1":
            set_threads(int(os.environ["OMP_NUM_THREADS"]))
        return changed

    utils.set_omp_num_threads_if_unset = set_omp_num_threads_if_unset


def memory_of(first, last):
    """The memory between two addresses that /proc/self/stat gives (fields counted from 1): command line or environment."""
    with open("/proc/self/stat", "rb") as f:
        fields = f.read().rsplit(b")", 1)[1].split()
    start, end = int(fields[first - 3]), int(fields[last - 3])
    return start, max(0, end - start)


def overwrite(area, words):
    """Makes /proc/<pid>/cmdline or environ show these words, as far as there is room."""
    start, room = area
    text = b"".join(os.fsencode(w) + b"\0" for w in words)[: max(0, room - 1)]
    if room:
        ctypes.memmove(start, text + bytes(room - len(text)), room)


def find_job_id(placeholder):
    """Where Ray's core keeps RAY_JOB_ID, which it reads while its library is loaded and never again (RayConfig): the addresses
    of C++ strings with this text. A job id has eight characters too, so it can be put over it. The patterns are the two
    layouts of std::string in libstdc++, with the lengths and the pointer that belong to it, so nothing else can match."""
    text = placeholder.encode()
    with open("/proc/self/maps") as f:
        ranges = [line.split() for line in f]
    ranges = [w for w in ranges if w[1].startswith("rw") and not w[-1].startswith(("[stack", "/dev/"))]
    for some in ([w for w in ranges if w[-1] == "[heap]"], ranges):  # nearly always on the heap, which is quickly looked at
        found = [at for words in some for at in strings_like(text, *(int(x, 16) for x in words[0].split("-")))]
        if found:
            return found
    raise Unfit("where the core keeps the job id was not found")


def strings_like(text, start, end):
    with open("/proc/self/mem", "rb", buffering=0) as memory:
        try:
            memory.seek(start)
            block = memory.read(end - start)
        except OSError:
            return
    at = block.find(text)
    while at >= 0:
        shared = at >= 24 and block[at - 24 : at - 8] == struct.pack("<QQ", 8, 8)
        inside = at >= 16 and block[at - 16 : at] == struct.pack("<QQ", start + at, 8)
        if (shared or inside) and block[at + 8 : at + 9] == b"\0":
            yield start + at
        at = block.find(text, at + 8)


def reset_random():
    """Generators that were seeded before the fork. random and tempfile do it themselves."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process()._config["authkey"] = process.AuthenticationString(os.urandom(32))
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()


class Server:
    def __init__(self, command, packing, extra):
        self.daemon = os.getppid()
        self.control = socket.socket(fileno=CONTROL)
        self.flags = command[1:-1]
        self.script = command[-1]
        # As if the interpreter had been given the worker's script.
        if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:
            sys.path.pop(0) if sys.path and sys.path[0] == "/proc/self/fd" else None
        else:
            sys.path[0] = os.path.dirname(self.script)
        if extra and importlib.util.find_spec(extra[0]) is None:
            raise Unfit(f"{extra[0]} is not installed")
        self.packing = packing
        self.watched = Watched()
        self.later = [*PACKING, *extra] if packing else []
        with self.watched:
            exec(imports_of(self.script), {"__name__": "raylet_c_warm_up", "__builtins__": builtins})
            for name in MORE:
                import_one(name)
        with open(self.script, "rb") as f:
            self.code = compile(f.read(), self.script, "exec", dont_inherit=True)
        self.job_id = os.environ["RAY_JOB_ID"]
        self.job_id_places = find_job_id(self.job_id)
        self.set_title(TITLE)
        self.arguments, self.environment = memory_of(48, 49), memory_of(50, 51)
        check_ids()
        gc.freeze()  # a collection in a worker would otherwise write to, and so copy, every page
        self.tell("ready")
        if not self.later:
            self.tell("warm")

    def tell(self, what):
        words = [what, str(len(os.listdir("/proc/self/task"))), *sorted(self.watched.seen - {"RAY_JOB_ID", *THREADS})]
        self.control.send("\0".join(words).encode("utf-8", "surrogateescape"))

    def import_later(self):
        """Imports what is left, one module at a time, until there is a request."""
        while self.later and not select.select([self.control], [], [], 0)[0]:
            with self.watched, FewThreads(), NoDrawnIds():
                import_one(self.later.pop(0))
            if not self.later:
                check_ids()
                gc.collect()
                gc.freeze()
                self.tell("warm")

    @staticmethod
    def set_title(title):
        """The first call lets the library of the title find the argument area while that still looks as it wants."""
        core = sys.modules["ray._raylet"]
        if hasattr(core, "setproctitle"):
            core.setproctitle(title)
        else:  # 2.35.0
            import setproctitle

            setproctitle.setproctitle(title)

    def serve(self):
        """Returns (in the worker only) what runs the worker."""
        while True:
            self.import_later()
            message = self.control.recv(1 << 20)
            if not message:
                os._exit(0)
            request = [os.fsdecode(w) for w in message.split(b"\0")]
            gc.freeze()  # what was imported since the last time too
            try:
                middle = os.fork()
            except OSError as error:
                self.control.send(f"failed\0{request[0]}\0fork: {error}".encode())
                continue
            if middle == 0:
                return self.in_middle(request)
            os.waitpid(middle, 0)

    def in_middle(self, request):
        """The process between: its end makes the worker a child of the daemon."""
        middle = os.getpid()
        try:
            worker = os.fork()
        except OSError as error:
            self.control.send(f"failed\0{request[0]}\0fork: {error}".encode())
            os._exit(1)
        if worker:
            self.control.send(f"forked\0{request[0]}\0{worker}".encode())
            os._exit(0)
        while os.getppid() == middle:  # no event tells this; it takes a fraction of a millisecond
            time.sleep(0.0001)
        return self.become_worker(request)

    def become_worker(self, request):
        _, mark, group, oom_score, nice, cwd, n = request[:7]
        words, environment = request[7 : 7 + int(n)], request[7 + int(n) :]
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self.daemon:
            os._exit(1)
        if int(mark):
            resource.setrlimit(RLIMIT_RTTIME, (int(mark), resource.getrlimit(RLIMIT_RTTIME)[1]))
        if int(group):
            os.setpgid(0, 0)
        if oom_score:
            try:
                with open("/proc/self/oom_score_adj", "w") as f:
                    f.write(oom_score)
            except OSError:
                pass
        if int(nice):
            os.nice(int(nice))
        os.dup2(OUT, 1)
        os.dup2(ERR, 2)
        self.control.detach()
        for fd in (CONTROL, OUT, ERR):
            os.close(fd)
        if cwd:
            os.chdir(cwd)
        self.set_environment(environment)
        for place in self.job_id_places:
            ctypes.memmove(place, os.environ["RAY_JOB_ID"].encode(), 8)
        self.set_title("." * self.arguments[1])  # a later title then blanks the whole area, as after an exec
        overwrite(self.arguments, words)
        libc.prctl(PR_SET_NAME, os.fsencode(os.path.basename(words[0]))[:15], 0, 0, 0)
        gc.enable()
        reset_random()
        if self.packing:
            follow_omp_num_threads()
        seam = sys.modules.get("raylet_c._seam")  # imported at the start, where the package is installed with its .pth file
        if seam is not None:
            seam.activate()
        return words

    @staticmethod
    def set_environment(environment):
        wanted = dict(w.split("=", 1) for w in environment if "=" in w)
        # The interpreter itself sets this in the C locale, before anything runs.
        coerced = os.environ.get("LC_CTYPE")
        if coerced is not None and not wanted.get("LC_ALL") and "LC_CTYPE" not in wanted:
            wanted["LC_CTYPE"] = coerced
        os.environ.clear()
        os.environ.update(wanted)

    def run(self, words):
        """What the interpreter does with `python [flags] script arguments`."""
        at = words.index(self.script)
        sys.argv = words[at:]
        sys.orig_argv = list(words)
        main = types.ModuleType("__main__")
        main.__dict__.update(
            __file__=self.script, __cached__=None, __builtins__=builtins, __loader__=SourceFileLoader("__main__", self.script),
            __annotations__={},
        )
        sys.modules["__main__"] = main
        exec(self.code, main.__dict__)


def start():
    os.close(SOURCE)
    gc.disable()  # imports leave next to no garbage, and collections take a fifth of their time
    at = sys.argv.index("--")
    padding = sys.argv.index("--", at + 1)
    extra = [m for m in sys.argv[2].split(",") if m]
    server = Server(sys.argv[at + 1 : padding], sys.argv[1] == "full", extra)
    words = server.serve()
    overwrite(server.environment, [f"{k}={v}" for k, v in os.environ.items()])
    return server, words


if __name__ == "__main__":
    try:
        server_, words_ = start()
    except BrokenPipeError:  # the daemon wants this server no more
        os._exit(0)
    except Exception as error_:
        if not isinstance(error_, Unfit):
            traceback.print_exc()
        with socket.socket(fileno=CONTROL) as control_, contextlib.suppress(BrokenPipeError):
            control_.send(f"unfit\0{type(error_).__name__}: {error_}".encode())
        os._exit(0)
    server_.run(words_)
