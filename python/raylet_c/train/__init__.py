"""The native FSDP behind torch's own: fully_shard, FullyShardedDataParallel, and Ray's prepare_model(parallel_strategy="fsdp").

In Ray's workers on our node it is in place by itself (raylet_c/_seam.py); elsewhere:

    import raylet_c.train
    raylet_c.train.install()

Models that were sharded before stay torch's. With RAYLET_C_FSDP=0 in the environment nothing is installed. install(master="float32"), or
RAYLET_C_FSDP_MASTER=float32 in the environment, gives parameters in 16 bits a float32 master each, which Adam, AdamW and SGD step (optim.py).
`graph(step)` makes one CUDA graph of a whole step (cuda_graph.py).
"""
import importlib
import os
import threading

FACES = ("fsdp2", "fsdp1", "optim", "prepare_model")
LAZY = {"graph": "cuda_graph"}  # name -> the module here that has it, imported (and torch with it) when the name is asked for
_installed = []
_lock = threading.RLock()


def install(master=None):
    """Takes torch's FSDP over, all of it or, when that fails, nothing. Later calls do nothing but turn masters on. Any thread."""
    wanted = os.environ.get("RAYLET_C_FSDP_MASTER") if master is None else master
    if wanted not in (None, "", "float32"):
        raise ValueError("masters are of float32, not %r (install's argument, or RAYLET_C_FSDP_MASTER)" % (wanted,))
    if os.environ.get("RAYLET_C_FSDP") == "0":
        return
    # All imports come before the lock: another thread may come here at the end of one of them, holding what we would wait for.
    importlib.import_module("torch.distributed.fsdp")
    faces = [importlib.import_module("raylet_c.train." + name) for name in FACES]
    with _lock:
        if wanted:
            faces[FACES.index("optim")].masters = True
        if _installed:
            return
        try:
            for face in faces:
                _installed.append(face)
                face.install()
        except BaseException:
            uninstall()
            raise


def uninstall():
    """Gives torch's own back to models that are sharded from now on."""
    with _lock:
        while _installed:
            _installed.pop().uninstall()


def installed():
    return bool(_installed)


def __getattr__(name):
    if name not in LAZY:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return getattr(importlib.import_module("raylet_c.train." + LAZY[name]), name)
