"""Sizes of the engine's buffers and messages, and the choice of its schedule, without the engine: what model.py builds and explain.py tells."""
from typing import NamedTuple, Optional, Tuple

ALIGN = 32  # elements between pieces: whole 64-byte lines in 16-bit types
QUANT_BLOCK = 128  # elements of one scale in quantised messages, RC_ENGINE_BLOCK; then also between pieces, so that no two share a scale
RING_SLOTS = 2  # gathered units at a time, of those that share memory
RING_BUCKETS = 2  # packed gradients at a time (GPU)


def up(n: int, to: int = ALIGN) -> int:
    return -(-n // to) * to


def message_bytes(kind: str, count: int) -> int:
    """Of a quantised message, as rc_quant_bytes."""
    blocks = -(-count // QUANT_BLOCK)
    return up(4 * blocks, 16) + blocks * QUANT_BLOCK // (2 if kind == "int4" else 1)


class Way(NamedTuple):
    """How messages go between ranks."""

    local: int  # ranks of a node
    nodes: int
    levels: int
    alone: bool  # two levels, of which that within a node is empty: every rank is a node of its own
    secondary: bool
    quantize_gather: Optional[str]
    quantize_reduce: Optional[str]
    notes: Tuple[str, ...]  # what was asked for and is not done

    @property
    def rows(self):
        """Ranks between which the upper level goes."""
        return self.nodes * self.local if self.alone else self.nodes

    @property
    def align(self):
        return QUANT_BLOCK if self.quantize_gather or self.quantize_reduce else ALIGN

    def __str__(self):
        parts = ["one level" if self.levels == 1 else "every rank a node of its own" if self.alone else "two levels"]
        parts += ["%s in %s" % (what, kind) for what, kind in (("gathers", self.quantize_gather), ("reductions", self.quantize_reduce)) if kind]
        return ", ".join(parts + ["secondary shard within the node"] * self.secondary)


def choose(options, ranks: int, local: int, replicated: bool = False) -> Way:
    """options: settings.Settings. local: ranks of a node, side by side in equal numbers; 0 when they are not, then nodes are not told apart."""
    notes = [] if local else ["one level: nodes have different numbers of ranks, or they are not side by side"]
    gather, reduce = options.quantize_gather, options.quantize_reduce
    if replicated and (gather or reduce):
        notes.append("quantize has no effect: parameters are replicated")
        gather = reduce = None
    local = local or ranks
    nodes = ranks // local
    secondary = options.secondary_shard and nodes > 1 and (options.two_level or local == 1)
    if options.secondary_shard and not secondary:
        notes.append("secondary_shard has no effect: %s" % ("two_level is off" if nodes > 1 else "all ranks are on one node"))
    two = options.two_level and nodes > 1 and local > 1
    alone = not two and ranks > 1 and bool(gather or reduce or secondary)
    if not two and not alone:
        gather = reduce = None
    return Way(local, nodes, 2 if two or alone else 1, alone, secondary, gather, reduce, tuple(notes))


def gather_bytes(way: Way, chunk: int, element: int, inside: bool):
    """(within nodes, between nodes): what comes to one rank for one gather, as it is counted. inside: from the secondary shard."""
    if way.levels == 1:
        return _flat(way, chunk * element)
    within = 0 if way.alone else way.nodes * (way.local - 1) * chunk * element
    message = message_bytes(way.quantize_gather, chunk) if way.quantize_gather else chunk * element
    return _upper(way, within, 0 if inside else (way.rows - 1) * message)


def reduce_bytes(way: Way, chunk: int, element: int):
    if way.levels == 1:
        return _flat(way, chunk * element)
    within = 0 if way.alone else way.nodes * (way.local - 1) * chunk * element
    message = message_bytes(way.quantize_reduce, chunk) if way.quantize_reduce else chunk * element
    return _upper(way, within, (way.rows - 1) * message)


def _upper(way, within, upper):
    """Where every rank is a node of its own, some of the upper level's messages stay on one host."""
    if not way.alone:
        return within, upper
    between = upper * (way.nodes - 1) * way.local // (way.rows - 1)
    return within + upper - between, between


def _flat(way, message):
    """A flat ring: one rank of each node takes from the node before, all others from their neighbour. The mean over ranks."""
    ranks = way.nodes * way.local
    between = message * (ranks - 1) / way.local if way.nodes > 1 else 0
    return message * (ranks - 1) - between, between


def stays(full_bytes, room: int):
    """Which of the units that share memory get memory of their own, so that they stay gathered between forward and backward: from the first
    on, while there is room. The last ones stay anyway. Returns indices."""
    kept = []
    for i, size in enumerate(full_bytes[: max(0, len(full_bytes) - RING_SLOTS)]):
        if size > room:
            break
        room -= size
        kept.append(i)
    return kept
