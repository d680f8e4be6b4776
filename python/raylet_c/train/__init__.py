"""The native FSDP behind torch's own: fully_shard, FullyShardedDataParallel, and Ray's prepare_model(parallel_strategy="fsdp").

In Ray's workers on our node it is in place by itself (raylet_c/_seam.py); elsewhere:

    import raylet_c.train
    raylet_c.train.install()

Models that were sharded before stay torch's. With RAYLET_C_FSDP=0 in the environment nothing is installed.
"""
import importlib
import os
import threading

FACES = ("fsdp2", "prepare_model")
_installed = []
_lock = threading.RLock()


def install():
    """Takes torch's FSDP over, all of it or, when that fails, nothing. Later calls do nothing. Any thread."""
    if os.environ.get("RAYLET_C_FSDP") == "0":
        return
    # All imports come before the lock: another thread may come here at the end of one of them, holding what we would wait for.
    importlib.import_module("torch.distributed.fsdp")
    faces = [importlib.import_module("raylet_c.train." + name) for name in FACES]
    with _lock:
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
