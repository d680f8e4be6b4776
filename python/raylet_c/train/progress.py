"""How many steps optimizers of this process have made, where the node can read it: for `raylet-c top`.

The daemon names a folder (transport.py); in it the file steps-PID has the number, 8 bytes, little-endian: a step costs a write of them (a
mapping would be a SIGBUS where the disk is full). It is begun when the first model comes onto the engine, and removed by the daemon when the
process is gone. With several optimizers each of their steps counts.
"""
import logging
import os
import struct

from . import transport

log = logging.getLogger(__name__)
_begun = False


def begin() -> None:
    """Counts from now on. Never fails: without a node, or when the file cannot be made, nothing is counted."""
    global _begun
    folder = transport.settings.get("logs")
    if _begun or not folder:
        return
    _begun = True
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook

        fd = os.open(os.path.join(folder, "steps-%d" % os.getpid()), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except (OSError, ImportError) as error:
        log.info("steps are not counted: %s", error)
        return
    steps, pid = 0, os.getpid()

    def stepped(*_):
        nonlocal steps
        if os.getpid() == pid:  # not in a fork of this process
            steps += 1
            try:
                os.pwrite(fd, struct.pack("<Q", steps), 0)
            except OSError:
                pass  # a full disk: the number stays behind

    register_optimizer_step_post_hook(stepped)
