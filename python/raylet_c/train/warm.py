"""Imported by the prefork server for trainers: what a worker will import, ready but not installed. Where it cannot be imported, a
worker says why when it tries."""
import contextlib

with contextlib.suppress(Exception):
    from raylet_c.train import fsdp1, fsdp2, optim, prepare_model  # noqa: F401
