"""Puts the native FSDP behind torch's, in the processes that ask for it. The wheel's raylet_c.pth imports this file at the start of
every Python process of its environment, so it imports next to nothing, and torch never: it waits until somebody else has.

A process asks by RAYLET_C=fsdp in its environment (a list with commas; the node daemon sets it for Python workers) and takes it
back by RAYLET_C_FSDP=0. With RAYLET_C_TRAIN_ENV, which the daemon sets too, the network of trainers is taken care of
(train/transport.py); empty, it is not.
"""
import _thread
import os
import sys

NEEDED = ("torch", "torch.distributed", "torch.distributed.fsdp")
# Nothing is done in the middle of the import of one of these, where it would be seen half made: torch._dynamo imports torch's FSDP.
WHOLE = NEEDED + (
    "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.tensor", "torch.distributed.tensor.parallel", "torch.optim",
)
RAY = ("ray.train.torch.train_loop_utils", "ray.train.v2.torch.train_loop_utils")
TORCH = ("torch", "torch.distributed")
RUNNING, DONE, FAILED = range(3)


class Waiting:
    """A finder that finds nothing itself: it makes the loaders of some modules tell when they are done."""

    def __init__(self):
        self.lock = _thread.allocate_lock()
        self.actions = []  # (needed, whole, function): called once, when all of `needed` are imported and none of `whole` is half
        self.state = {}    # of modules whose import was followed

    def add(self, needed, whole, function):
        with self.lock:
            self.actions.append((needed, whole, function))
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        self.act()

    def half(self, name):
        spec = getattr(sys.modules.get(name), "__spec__", None)
        return self.state.get(name) == RUNNING or name not in self.state and getattr(spec, "_initializing", False)

    def imported(self, name):
        return self.state.get(name) == DONE or name not in self.state and name in sys.modules and not self.half(name)

    def act(self):
        with self.lock:
            ready = [a for a in self.actions if all(map(self.imported, a[0])) and not any(map(self.half, a[1]))]
            self.actions = [a for a in self.actions if a not in ready]
        for _, _, function in ready:
            try:
                function()
            except Exception as error:  # somebody's import of torch or Ray: it must not fail because of us
                import logging

                text = " ".join(str(error).split())
                logging.getLogger("raylet_c.train").warning("torch's own FSDP stays in place: %s: %s", type(error).__name__, text)

    def find_spec(self, name, path=None, target=None):
        if not any(name in whole for _, whole, _ in self.actions):
            return None
        for finder in list(sys.meta_path):
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                self.follow(name, spec.loader)
                return spec
        return None

    def follow(self, name, loader):
        """Each import has a loader of its own, so only this one is changed; it stays what it was for all who ask for its type."""
        if isinstance(loader, type) or not hasattr(loader, "exec_module"):
            return
        execute = loader.exec_module

        def exec_module(module):
            self.state[name] = RUNNING
            state = FAILED
            try:
                execute(module)
                state = DONE
                parent, _, child = name.rpartition(".")
                if parent in sys.modules:  # the import does this a moment later: too late for who looks for a.b.c
                    setattr(sys.modules[parent], child, module)
            finally:
                self.state[name] = state
                self.act()

        loader.exec_module = exec_module


waiting = Waiting()


begun = set()


def first(part):
    """True once for each part, whoever calls activate() how often."""
    if part in begun:
        return False
    begun.add(part)
    return True


def install():
    from raylet_c import train

    train.install()


def serve_prepare_model():
    from raylet_c.train import prepare_model

    prepare_model.install()


def serve_transport():
    from raylet_c.train import transport

    transport.install()


def activate():
    """Called at the start of a process, and by the prefork server in a worker that it forked. Later calls do nothing."""
    if os.environ.get("RAYLET_C_TRAIN_ENV") and first("transport"):
        waiting.add(TORCH, TORCH, serve_transport)
    wanted = "fsdp" in os.environ.get("RAYLET_C", "").split(",") and os.environ.get("RAYLET_C_FSDP") != "0"
    if wanted and first("fsdp"):
        for name in RAY:
            waiting.add((name,), (name,), serve_prepare_model)
        waiting.add(NEEDED, WHOLE, install)


activate()
