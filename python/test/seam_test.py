"""The seam that raylet_c.pth brings: what it does to the imports of a process, tried with small stand-ins for torch, Ray and the faces,
each case in a Python of its own."""
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = os.path.join(os.path.dirname(HERE), "raylet_c")
number = 0
failed = False

FACE = """
import sys
import torch, torch.distributed.fsdp
assert torch.whole and torch.distributed.fsdp.whole, "seen half made"
if "torch._dynamo" in sys.modules:
    assert torch._dynamo.whole, "seen half made"
calls = []
def install():
    calls.append("install")
    {install}
    for m in list(sys.modules.values()):
        if getattr(m, "fully_shard", None) is stock:
            m.fully_shard = ours
def uninstall():
    calls.append("uninstall")
    torch.distributed.fsdp.fully_shard = stock
stock = torch.distributed.fsdp.fully_shard
def ours():
    return "ours"
"""
FILES = {
    "torch/__init__.py": "import torch.distributed\nwhole = True\n",
    "torch/distributed/__init__.py": "",
    "torch/distributed/fsdp/__init__.py": "from ._fully_shard import fully_shard\nwhole = True\n",
    "torch/distributed/fsdp/_fully_shard.py": "def fully_shard():\n    return 'stock'\n",
    "torch/_dynamo/__init__.py": "import torch.distributed.fsdp\nseen = torch.distributed.fsdp.fully_shard()\nwhole = True\n",
    "torch/broken.py": "import torch.distributed.fsdp\nraise ValueError('broken')\n",
    "raylet_c/_train.py": "from raylet_c import VERSION\n",
    "raylet_c/train/torch_names.py": "def check():\n    pass\n",
    "ray/__init__.py": "",
    "ray/train/__init__.py": "class get_context:\n    def get_world_size(self):\n        return 2\n",
    "ray/train/torch/__init__.py": (
        "import torch\nfrom ray.train.torch.train_loop_utils import prepare_model\n"
        "def get_device():\n    return torch.device('cpu')\n"
    ),
    "ray/train/torch/train_loop_utils.py": (
        "def prepare_model(model, move_to_device=True, parallel_strategy='ddp', parallel_strategy_kwargs=None):\n"
        "    'of Ray'\n    return ('stock', model, parallel_strategy)\n"
    ),
}
FULL = "class FullyShardedDataParallel:\n    def __init__(self, model, **options):\n        self.model, self.options = model, options\n"
DEVICE = "class device:\n    def __init__(self, type):\n        self.type = type\n"


def check(right, sentence, text=""):
    global number, failed
    number += 1
    failed = failed or not right
    print("%s %d - %s" % ("ok" if right else "not ok", number, sentence))
    if not right:
        print(textwrap.indent(text, "# "))


def case(sentence, code, want, environment=(("RAYLET_C", "fsdp"),), files=(), log=""):
    """The code prints `want`; what it logs holds `log` and is one line (or none)."""
    with tempfile.TemporaryDirectory() as top:
        tree = dict(FILES)
        for name in ("fsdp1", "fsdp2", "optim"):
            tree["raylet_c/train/%s.py" % name] = FACE.format(install="pass")
        tree.update(files)
        tree["torch/__init__.py"] = DEVICE + tree["torch/__init__.py"]
        tree["torch/distributed/fsdp/__init__.py"] += FULL
        for name in ("__init__.py", "_seam.py", "train/__init__.py", "train/prepare_model.py", "train/settings.py",
                     "train/transport.py"):
            os.makedirs(os.path.dirname(os.path.join(top, "raylet_c", name)), exist_ok=True)
            shutil.copy(os.path.join(PACKAGE, name), os.path.join(top, "raylet_c", name))
        for name, text in tree.items():
            os.makedirs(os.path.dirname(os.path.join(top, name)), exist_ok=True)
            with open(os.path.join(top, name), "w") as f:
                f.write(text)
        env = {k: v for k, v in os.environ.items() if not k.startswith(("RAYLET_C", "PYTHON"))}
        env.update(environment, PYTHONPATH=top)
        start = "import site, sys; site.addsitedir(%r)\n" % top  # the .pth file is read as in a folder of packages
        shutil.copy(os.path.join(os.path.dirname(PACKAGE), "raylet_c.pth"), top)
        done = subprocess.run([sys.executable, "-S", "-c", start + textwrap.dedent(code)], env=env, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, universal_newlines=True, timeout=60)
    logged = done.stderr.splitlines()
    right = done.returncode == 0 and done.stdout.strip() == want and len(logged) == (1 if log else 0) and log in done.stderr
    check(right, sentence, "wanted %r, got %r\n%s" % (want, done.stdout, done.stderr))


USE = "import torch.distributed.fsdp as f; print(f.fully_shard())"


def inert():
    look = "print([m for m in sys.modules if m.startswith(('raylet_c.train', 'torch', 'logging', 'importlib.util'))], len(sys.meta_path)); "
    for value in (None, "0", "", "worker", "fsdpx"):
        environment = () if value is None else (("RAYLET_C", value),)
        case("nothing is done with RAYLET_C=%s" % value, look + USE, "[] 3\nstock", environment)
    case("nothing is done with RAYLET_C_FSDP=0", look + USE, "[] 3\nstock", (("RAYLET_C", "fsdp"), ("RAYLET_C_FSDP", "0")))


def transport():
    files = {
        "torch/distributed/__init__.py": "from .distributed_c10d import init_process_group\nfrom . import distributed_c10d\n",
        "torch/distributed/distributed_c10d.py": "def init_process_group(name):\n    return name\n",
    }
    environment = (("RAYLET_C_TRAIN_ENV", "A_DEFAULT=1\nOWN=2\n@transport=tcp"), ("OWN", "3"))
    look = """
        import os
        before = os.environ.get("A_DEFAULT")
        import torch
        print(before, os.environ.get("A_DEFAULT"), os.environ["OWN"], torch.distributed.init_process_group.__wrapped__("x"))
        """
    case("the environment of trainers comes with torch.distributed, and what is set stays", look, "None 1 3 x", environment, files)
    off = "import os, torch; print(os.environ.get('A_DEFAULT'), hasattr(torch.distributed.init_process_group, '__wrapped__'))"
    case("an empty RAYLET_C_TRAIN_ENV turns it off", off, "None False", (("RAYLET_C_TRAIN_ENV", ""),), files)
    broken = dict(files, **{"torch/distributed/__init__.py": ""})
    case("a torch without process groups goes on, with one line", "import torch; print(torch.whole)", "True", environment, broken,
         "the transport of this worker is not watched")


def active():
    look = "print([m for m in sys.modules if m.startswith(('raylet_c.train', 'torch', 'logging'))]); "
    case("at the start nothing is imported, then torch's FSDP is taken over by whoever imports it", look + USE, "[]\nours")
    case("it is one word of a list", USE, "ours", (("RAYLET_C", "worker,fsdp"),))
    submodule = "from torch.distributed.fsdp._fully_shard import fully_shard; print(fully_shard())"
    case("a submodule's name is taken over too", submodule, "ours")
    case("importlib.util.find_spec changes nothing", """
        import importlib.util
        spec = importlib.util.find_spec("torch.distributed.fsdp")
        assert type(spec.loader).__name__ == "SourceFileLoader" and spec.loader.get_source("torch.distributed.fsdp")
        assert importlib.util.find_spec("torch.distributed.nothing") is None
        """ + USE, "ours")
    case("a reload keeps it", "import importlib, torch.distributed.fsdp as f; importlib.reload(f); print(f.fully_shard())", "ours")
    early = {"torch/__init__.py": "import torch.distributed.fsdp\nwhole = True\n"}
    case("while torch is half imported it waits", USE, "ours", files=early)
    case("while torch._dynamo is half imported it waits", "import torch._dynamo as d; print(d.seen, end=' '); " + USE, "stock ours")
    case("a module of torch that fails in its import fails as ever, and the rest works", """
        try:
            import torch.broken
        except ValueError as e:
            print(e, end=" ")
        """ + USE, "broken ours")
    name = "torch/distributed/fsdp/_fully_shard.py"
    flaky = "import sys\nif not hasattr(sys, 'second'):\n    sys.second = True\n    raise ImportError('not yet')\n" + FILES[name]
    case("an import of FSDP that fails is tried again", """
        try:
            import torch.distributed.fsdp
        except ImportError as e:
            print(e, end=" ")
        """ + USE, "not yet ours", files={name: flaky})
    case("of many threads that import at once each gets it, and it is installed once", """
        import sys, threading
        sys.setswitchinterval(1e-6)
        got, gate = [], threading.Barrier(8)
        def one():
            gate.wait()
            from torch.distributed.fsdp import fully_shard
            got.append(fully_shard())
        threads = [threading.Thread(target=one) for _ in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        from raylet_c.train import fsdp2
        print(got == 8 * ["ours"], fsdp2.calls)
        """, "True ['install']")
    case("install() by hand does the same, once", """
        import raylet_c.train
        raylet_c.train.install()
        raylet_c.train.install()
        """ + USE + "; print(raylet_c.train.installed(), raylet_c.train.fsdp1.calls)", "ours\nTrue ['install']", ())
    case("uninstall() gives torch's own back", """
        import torch.distributed.fsdp, raylet_c.train
        raylet_c.train.uninstall()
        """ + USE + "; print(raylet_c.train.installed())", "stock\nFalse")
    case("RAYLET_C_FSDP=0 also holds for install() by hand", "import raylet_c.train; raylet_c.train.install(); " + USE, "stock",
         (("RAYLET_C_FSDP", "0"),))


def errors():
    broken = {"raylet_c/train/fsdp1.py": FACE.format(install="raise RuntimeError('no\\nway')")}
    case("an error leaves torch's own in place, with one line", USE + "; print(sys.modules['raylet_c.train.fsdp2'].calls)",
         "stock\n['install', 'uninstall']", files=broken, log="torch's own FSDP stays in place: RuntimeError: no way")
    case("a face that cannot be imported leaves torch's own in place, with one line", USE, "stock",
         files={"raylet_c/train/fsdp1.py": "import no_such_module\n"}, log="ModuleNotFoundError: No module named 'no_such_module'")
    case("without the C module torch's own stays in place, with one line", USE, "stock",
         files={"raylet_c/_train.py": "import no_such_module\n"}, log="the C module raylet_c._train cannot be loaded: No module named 'no_such_module'")
    case("with a C module of another version torch's own stays in place, with one line", USE, "stock",
         files={"raylet_c/_train.py": "VERSION = '0.0.9'\n"}, log="the C module raylet_c._train is 0.0.9, the Python files beside it are ")
    case("with a C module without a version torch's own stays in place, with one line", USE, "stock", files={"raylet_c/_train.py": ""},
         log="the C module raylet_c._train is of another build, the Python files beside it are ")
    case("a release of torch that has not all names keeps its own, with one line", USE, "stock",
         files={"raylet_c/train/torch_names.py": "from torch.distributed.fsdp import no_such_name\n",
                "torch/__init__.py": "__version__ = '9.9.9'\n" + FILES["torch/__init__.py"]},
         log="RuntimeError: torch 9.9.9 is not served by raylet_c: cannot import name 'no_such_name'")


def forked():
    case("a process that has torch already is taken over after a fork, when its environment says so", """
        import os, torch._dynamo
        for value in ("0", "fsdp"):
            sys.stdout.flush()
            child = os.fork()
            if child == 0:
                os.environ["RAYLET_C"] = value
                sys.modules["raylet_c._seam"].activate()
                sys.modules["raylet_c._seam"].activate()
                """ + USE + """
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)
        """, "stock\nours", ())


def of_ray():
    ask = (
        "m = ray.train.torch.prepare_model('model', parallel_strategy='fsdp', parallel_strategy_kwargs={'x': 1})\n"
        "print(m if isinstance(m, tuple) else (m.model, m.options['x'], m.options['device_id'].type))\n"
    )
    start = "import ray.train.torch\n"
    case("prepare_model with fsdp works on the CPU", start + ask, "(('stock', 'model', None), 1, 'cpu')")
    held = (
        "import ray.train.torch, torch.distributed.fsdp, raylet_c.train\n"
        "from ray.train.torch import prepare_model as renamed\n"
        "raylet_c.train.install()\n"
        "print(renamed is ray.train.torch.prepare_model is ray.train.torch.train_loop_utils.prepare_model)\n"
        "print(renamed.__doc__, renamed.__module__)\n"
    )
    case("prepare_model is replaced where it is held already", held + ask,
         "True\nof Ray ray.train.torch.train_loop_utils\n(('stock', 'model', None), 1, 'cpu')", ())
    case("the other strategies are Ray's own", start + "p = ray.train.torch.prepare_model; print(p('m'), p('m', True, None))",
         "('stock', 'm', 'ddp') ('stock', 'm', None)")
    cuda = "ray.train.torch.get_device = lambda: [ray.train.torch.torch.device('cuda')]\n"
    case("on another device it is Ray's own", start + cuda + ask, "('stock', 'model', 'fsdp')")
    off = (("RAYLET_C", "fsdp"), ("RAYLET_C_FSDP", "0"))
    case("with RAYLET_C_FSDP=0 it is Ray's own", start + ask, "('stock', 'model', 'fsdp')", off)


def cost():
    code = "import sys, time; sys.path.insert(0, %r); a = time.process_time(); import raylet_c._seam; print(time.process_time() - a)"
    with tempfile.TemporaryDirectory() as compiled:  # as pip leaves it
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        for value in ("0", "fsdp"):
            env.update(RAYLET_C=value, PYTHONPYCACHEPREFIX=compiled)
            command = [sys.executable, "-c", code % os.path.dirname(PACKAGE)]
            seconds = min(float(subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True).stdout) for _ in range(10))
            check(seconds < 0.001, "RAYLET_C=%s costs under 1 ms at the start (%.2f ms)" % (value, 1000 * seconds))


def main():
    for group in (inert, transport, active, errors, forked, of_ray, cost):
        group()
    print("1..%d" % number)
    sys.exit(1 if failed else 0)


main()
