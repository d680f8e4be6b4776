"""Which ranks share a node, the communicators that follow from it, and the memory that two levels need. See train_backend/fsdp/levels.h.

Nodes are told apart by the hosts that ranks are on, exchanged through torch's store, or by the option ranks_per_node. All ranks come to the same
answer, since all see the same list.
"""
from __future__ import annotations

import itertools
import json
import logging
import weakref

import torch
import torch.distributed as dist

from . import comm, settings
from .layout import choose

log = logging.getLogger("raylet_c.train")
models = weakref.WeakSet()  # that live: for traffic()


def traffic():
    """What came to this rank since the start, for the models that live: bytes within and between nodes, and counts of gathers (of which
    secondary_gathers went within the node alone) and reductions."""
    total = dict(within=0, between=0, gathers=0, secondary_gathers=0, reductions=0)
    for model in list(models):
        for c in model.levels.comms:
            total["within"] += c.taken - c.crossed
            total["between"] += c.crossed
        stats = model.engine.stats()
        for name in ("gathers", "secondary_gathers", "reductions"):
            total[name] += stats[name]
    return total


def _hosts(group, device, options):
    """The node of each rank of a group, as a name. Options that differ between ranks are an error on all of them."""
    own = "node %d" % (dist.get_rank() // options.ranks_per_node) if options.ranks_per_node else comm.host()
    said = [json.loads(text) for text in comm.share(group, "node", json.dumps([own, options]), device)]
    for rank, (_, theirs) in enumerate(said):
        for name, ours, other in zip(options._fields, said[0][1], theirs):
            if ours != other:
                raise ValueError("raylet_c.train: rank 0 has %s=%s, rank %d has %s" % (name, ours, rank, other))
    return [host for host, _ in said]


def _side_by_side(hosts):
    """Ranks of a node, when each node has as many and they follow each other; else 0."""
    runs = [(host, len(list(run))) for host, run in itertools.groupby(hosts)]
    regular = len(set(hosts)) == len(runs) and len({n for _, n in runs}) == 1
    return runs[0][1] if regular else 0


class Levels:
    """gather, reduce, replicate, gather_between, reduce_between: as in rc_engine_config, None where there is none."""

    def __init__(self, group, replicas, device):
        """group: the ranks that shard. replicas: those that hold the same shard, or None. Collective."""
        options = settings.get()
        self.group, self.device, self.cuda = group, device, device.type == "cuda"
        self.ranks, self.rank = group.size(), group.rank()
        self.keep = options.keep_gathered
        self.way = way = choose(options, self.ranks, _side_by_side(_hosts(group, device, options)), replicas is not None)
        for note in way.notes:
            log.warning("%s", note)
        self.gather = self.reduce = self.replicate = self.gather_between = self.reduce_between = None
        if way.levels == 1:
            self.gather, self.reduce = self._pair(range(self.ranks), way.local)
        elif way.alone:
            self.gather_between, self.reduce_between = self._pair(range(self.ranks), way.local)
        else:
            node, place = divmod(self.rank, way.local)
            self.gather, self.reduce = self._pair(range(node * way.local, (node + 1) * way.local), 0)
            self.gather_between, self.reduce_between = self._pair(range(place, self.ranks, way.local), 1)
        if replicas is not None:
            self.replicate = comm.connect(replicas, device)
            self.replicate.set_local(_side_by_side(_hosts(replicas, device, options)) or 1)
        every = (self.gather, self.reduce, self.replicate, self.gather_between, self.reduce_between)
        self.comms = list({id(c): c for c in every if c is not None}.values())
        self._memory = []  # held
        log.debug("%d ranks on %d nodes: %s", self.ranks, way.nodes, way)

    def _pair(self, ranks, local):
        """Communicators for gathers and for reductions: two on a GPU, where both run at once."""
        first = comm.connect(self.group, self.device, ranks=ranks)
        second = comm.connect(self.group, self.device, ranks=ranks) if self.cuda else first
        for c in (first, second):
            c.set_local(local)
        return first, second

    # Memory

    def least_free(self):
        """Bytes that are free on each rank, when it has run some steps: what the fullest one has. Collective."""
        if self.cuda:
            free, total = torch.cuda.mem_get_info(self.device)
            unused = torch.cuda.memory_reserved(self.device) - torch.cuda.max_memory_allocated(self.device)
            free += max(0, unused) - total // 20
        else:
            with open("/proc/meminfo", encoding="ascii") as f:
                free = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable"))
            free //= 2 * self.way.local
        return max(0, min(map(int, comm.share(self.group, "free", str(free), self.device))))

    def window(self, size, reduce=False):
        """CPU: bytes that peers can reach for what this rank sends, zeroed."""
        over = (self.reduce or self.reduce_between) if reduce else (self.gather_between or self.gather)
        return _window_of(over, size)

    def _near(self, size):
        """Bytes that ranks of the node reach."""
        if self.cuda or self.gather is None:
            return torch.empty(max(size, 1), dtype=torch.uint8, device=self.device)
        return _window_of(self.gather, size)

    def furnish(self, model, specs, layouts):
        """Scratch memory, and the secondary shards. layouts: the first of each is its unit's chunk."""
        models.add(model)
        if self.way.levels == 1:
            return
        engine = model.engine
        chunks = [layout[0] for layout in layouts]
        gather = max(engine.gather_room(c, str(s.param_dtype)) for s, c in zip(specs, chunks))
        reduce = max(engine.reduce_room(c + self.way.align * s.compact, str(s.reduce_dtype)) for s, c in zip(specs, chunks))
        near, scratch = self._near(gather), torch.empty(max(reduce, 1), dtype=torch.uint8, device=self.device)
        engine.set_rooms(near.data_ptr(), gather, scratch.data_ptr(), reduce)
        self._memory += [near, scratch]
        if not self.way.secondary:
            return
        sizes = [-(-self.way.rows * c * s.param_dtype.itemsize // 64) * 64 for s, c in zip(specs, chunks)]
        memory, at = self._near(sum(sizes)), 0
        for unit, size in zip(model.units, sizes):
            engine.set_secondary(unit.index, memory[at:].data_ptr() if size else 0)
            at += size
        self._memory.append(memory)

    def set_residual(self, engine, unit):
        """What quantised reductions of a unit have lost so far, after its gradient was laid out."""
        if self.way.quantize_reduce:
            unit.residual = torch.zeros(self.way.rows * unit.grad_chunk, device=self.device)
            engine.set_residual(unit.index, unit.residual.data_ptr() if unit.grad_chunk else 0)


def _window_of(over, size):
    return torch.frombuffer(over.window(max(size, 1)).memory, dtype=torch.uint8)
