"""The native FSDP behind torch's own: fully_shard, FullyShardedDataParallel, and Ray's prepare_model(parallel_strategy="fsdp").

In Ray's workers on our node it is in place by itself (raylet_c/_seam.py); elsewhere:

    import raylet_c.train
    raylet_c.train.install()

Models that were sharded before stay torch's. With RAYLET_C_FSDP=0 in the environment nothing is installed.
`graph(step)` makes one CUDA graph of a whole step (cuda_graph.py). `traffic()` tells the bytes within and between nodes (levels.py).
"""
import importlib
import os
import threading

from raylet_c import VERSION
from . import settings

FACES = ("fsdp2", "fsdp1", "optim", "prepare_model")
LAZY = {"graph": "cuda_graph", "traffic": "levels"}  # name -> the module here that has it, imported (and torch with it) when the name is asked for
_installed = []
_lock = threading.RLock()


def install(**options):
    """Takes torch's FSDP over, all of it or, when that fails, nothing: then it raises. Later calls only take options, which are those of
    settings.py: for models that are sharded from now on, the same on all ranks. Any thread."""
    settings.give(options)
    if os.environ.get("RAYLET_C_FSDP") == "0":
        return
    # All imports come before the lock: another thread may come here at the end of one of them, holding what we would wait for.
    importlib.import_module("torch.distributed.fsdp")
    _check()
    faces = [importlib.import_module("raylet_c.train." + name) for name in FACES]
    with _lock:
        faces[FACES.index("optim")].masters = settings.get().master is not None
        if _installed:
            return
        try:
            for face in faces:
                _installed.append(face)
                face.install()
        except BaseException:
            uninstall()
            raise


def _check():
    """Raises, with one line, when the C module or torch are not those that the faces are made for."""
    try:
        built = getattr(importlib.import_module("raylet_c._train"), "VERSION", "of another build")
    except ImportError as error:
        raise ImportError("the C module raylet_c._train cannot be loaded: %s" % error) from None
    if built != VERSION:
        raise ImportError("the C module raylet_c._train is %s, the Python files beside it are %s" % (built, VERSION))
    try:
        importlib.import_module("raylet_c.train.torch_names").check()
    except ImportError as error:
        torch = importlib.import_module("torch")
        raise RuntimeError("torch %s is not served by raylet_c: %s" % (torch.__version__, error)) from None


def uninstall():
    """Gives torch's own back, between steps: to models that are on the engine too."""
    with _lock:
        while _installed:
            _installed.pop().uninstall()


def installed():
    return bool(_installed)


def __getattr__(name):
    if name not in LAZY:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("raylet_c.train." + LAZY[name]), name)
