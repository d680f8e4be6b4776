"""Communicators of raylet_c._train for the ranks of a torch process group."""
from __future__ import annotations

import os
import socket
import time

import torch
import torch.distributed as dist

from raylet_c import _train

DEFAULT_TIMEOUT = 600.0


def _store(group: dist.ProcessGroup) -> dist.Store:
    """The store that torch made for this group: every group has its own prefix in it."""
    return dist.distributed_c10d._world.pg_map[group][1]


def _timeout(group: dist.ProcessGroup, device: torch.device) -> float:
    """Seconds that the script gave the group; not every backend tells."""
    if isinstance(getattr(group, "seconds", None), float):  # process_group.py's
        return group.seconds
    try:
        return group._get_backend(device).options._timeout.total_seconds()
    except (AttributeError, RuntimeError):
        return DEFAULT_TIMEOUT


def _share(store: dist.Store, name: str, rank: int, size: int, value, timeout: float) -> list[bytes]:
    """Brings every rank the values of all. The n-th call of each rank meets the n-th of the others."""
    call = store.add(f"raylet_c/{name}s/{rank}", 1)
    keys = [f"raylet_c/{name}/{call}/{r}" for r in range(size)]
    store.set(keys[rank], value)
    end, pause = time.monotonic() + timeout, 0.001
    while not store.check(keys):  # store.wait would hold up every other thread that uses the store, and so the ranks each other
        if time.monotonic() > end:
            absent = [r for r, key in enumerate(keys) if not store.check([key])]
            raise TimeoutError(f"connect: ranks {absent} of {size} did not come within {timeout:g} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return [store.get(key) for key in keys]


def share(group: dist.ProcessGroup, name: str, value: str, device: torch.device) -> list[bytes]:
    """What each rank of the group says, in their order. All ranks call."""
    return _share(_store(group), name, group.rank(), group.size(), value, _timeout(group, device))


def host() -> str:
    """Ranks with the same answer reach each other's memory: the same boot of the same kernel, the same process namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
        return f.read().strip() + " " + os.readlink("/proc/self/ns/pid")


def _own_address() -> str | None:
    """This host's address as the others reach it: RAYLET_C_COMM_IP, else that from which it reaches the script's master."""
    master = os.environ.get("MASTER_ADDR")
    if os.environ.get("RAYLET_C_COMM_IP") or not master:
        return os.environ.get("RAYLET_C_COMM_IP")
    try:
        family, kind, _, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as s:
            s.connect(address)  # of datagrams: nothing is sent
            return s.getsockname()[0]
    except OSError:
        return None


def of_cpu(store: dist.Store, rank: int, size: int, timeout: float) -> _train.Comm:
    """A communicator of CPU memory, connected: shared memory when all ranks are on one host, else libfabric. RAYLET_C_COMM=fabric, on any
    rank, takes libfabric in any case; RAYLET_C_FABRIC names its providers."""
    force = os.environ.get("RAYLET_C_COMM", "")
    if force not in ("", "auto", "fabric"):
        raise ValueError(f"RAYLET_C_COMM={force}: auto and fabric are known")
    said = _share(store, "host", rank, size, "fabric" if force == "fabric" else host(), timeout)
    if len(set(said)) == 1 and said[0] != b"fabric":
        comm = _train.Comm.shm(rank, size, timeout)
    else:
        providers = os.environ.get("RAYLET_C_FABRIC")
        comm = _train.Comm.fabric(rank, size, timeout, None if providers in ("auto", "off") else providers, _own_address())
    return exchange(store, rank, size, comm, timeout)


def exchange(store: dist.Store, rank: int, size: int, comm: _train.Comm, timeout: float) -> _train.Comm:
    """Brings every rank the blobs of all and joins them."""
    comm.connect(_share(store, "blob", rank, size, comm.blob(), timeout))
    return comm


def connect(group: dist.ProcessGroup | None, device: torch.device | str, timeout: float | None = None, ranks: range | None = None) -> _train.Comm:
    """A communicator of the group's ranks (None: all): NCCL for a CUDA device, for the CPU shared memory or, between hosts, libfabric. All ranks of the group call. ranks: of
    these alone, this one among them; each of them names the same."""
    group = group or dist.group.WORLD
    device = torch.device(device)
    store, rank, size = _store(group), group.rank(), group.size()
    timeout = timeout or _timeout(group, device)
    if ranks is not None and len(ranks) < size:
        store, rank, size = dist.PrefixStore(f"raylet_c/{ranks}", store), ranks.index(rank), len(ranks)
    if device.type == "cuda":
        index = torch.cuda.current_device() if device.index is None else device.index
        return exchange(store, rank, size, _train.Comm.nccl(rank, size, index, timeout), timeout)
    return of_cpu(store, rank, size, timeout)
