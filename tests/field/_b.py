"""A little more than `_field.py` has: named steps in a scenario, drivers in the scenario's own process, figures of a store."""
import os
import time
from contextlib import contextmanager

import _field
from _field import Wrong, note, wait_for


@contextmanager
def step(name):
    """A part of a scenario: its name stands before what was wrong in it."""
    began = time.monotonic()
    try:
        yield
    except Wrong as error:
        raise Wrong(f"{name}: {error}") from error
    except Exception as error:
        raise Wrong(f"{name}: {type(error).__name__}: {str(error)[-1500:]} {where(error)}") from error
    note(f"{name}: {time.monotonic() - began:.1f} s")


def where(error):
    lines, at = [], error.__traceback__
    while at:
        if os.path.dirname(at.tb_frame.f_code.co_filename) == _field.HERE:
            lines.append(f"{os.path.basename(at.tb_frame.f_code.co_filename)}:{at.tb_lineno}")
        at = at.tb_next
    return "at " + " < ".join(reversed(lines))


def connect(f, **init):
    """Makes this process a driver on the head's node. Returns ray."""
    import ray

    ray.init(address=f.address, _node_ip_address=f.head_ip, logging_level="ERROR", log_to_driver=False, **init)
    return ray


def store(node):
    """Statistics of the object store of a node, as the node itself answers them."""
    from ray._private.internal_api import node_stats

    return node_stats(node.record["ip"], node.record["manager_port"], include_memory_info=False).store_stats


def core_logs(f):
    """What the daemons and the workers of the session wrote."""
    folder = f.session_logs()
    names = [n for n in sorted(os.listdir(folder)) if n.startswith(("raylet", "worker", "python-core-worker"))]
    return "\n".join(_field.read(os.path.join(folder, n)) for n in names)


def is_260(f):
    return tuple(int(x) for x in f.release.split(".")[:2]) >= (2, 60)


__all__ = ["connect", "core_logs", "is_260", "note", "step", "store", "wait_for"]
