"""A sharded model on the engine: buffers, units and what happens once a unit and step. Shared by the faces of FSDP1 and FSDP2.

A unit is a group of parameters that is gathered and reduced together. A face describes each as a UnitSpec, then calls Model.begin,
enter, leave and pre_backward from its hooks; reductions start by themselves when a unit's gradients have all arrived.
"""
import logging
import weakref
from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional, Tuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from raylet_c import _train

from . import progress
from .host import pinned
from .layout import RING_BUCKETS, RING_SLOTS, stays, up

log = logging.getLogger("raylet_c.train")

KEEP_AFTER = 2  # steps of an optimizer, after which it is known how much memory a step takes
TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
watchers = []  # called with each Model that begins a step


def own_storage(view: torch.Tensor) -> torch.Tensor:
    """The same memory, which it keeps alive, without what else lies there: torch.save and copy.deepcopy take whole storages."""
    return torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(view)) if view.numel() else view.new_empty(view.shape)


def storage_users(tensor: torch.Tensor) -> int:
    """How many tensors lie on the tensor's storage."""
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


@dataclass
class PieceSpec:
    """What is sharded evenly: one parameter (FSDP2) or a unit's flat parameter (FSDP1). Elements."""

    count: int  # of one rank's chunk, padding included
    total: int  # without padding


@dataclass
class TensorSpec:
    """One gathered parameter, a view into its piece."""

    piece: int
    offset: int  # elements, from the piece's start
    shape: torch.Size
    sharded: Any  # what modules hold outside of forward and backward
    places: Tuple[Tuple[dict, str], ...]  # where they hold it
    requires_grad: bool


@dataclass(eq=False)
class UnitSpec:
    name: str
    pieces: List[PieceSpec]
    tensors: List[TensorSpec]
    dtype: torch.dtype  # of the shard
    param_dtype: torch.dtype  # of the gathered parameters
    reduce_dtype: torch.dtype  # of gradient messages
    alone: bool  # has memory of its own for gathered parameters: other units are used inside it, or it stays gathered after forward
    flat: bool = False  # one piece, many tensors
    compact: bool = False  # flat: its gradient holds only what is trained, see Unit.grad_parts; else all, at the places of the flat parameter


@dataclass(eq=False)
class Unit:
    spec: UnitSpec
    index: int
    chunk: int
    offsets: List[int]  # of each piece in the chunk
    shard: torch.Tensor  # [chunk] of dtype
    full: torch.Tensor  # the gathered pieces
    gathered: List[torch.nn.Parameter]
    slot: int
    first_bucket: int
    own_bucket: bool  # has a bucket for itself, whose memory comes when it reduces
    trained: Tuple[bool, ...] = ()
    grad: Optional[torch.Tensor] = None  # [grad_chunk] of dtype; its storage is freed while no gradient is wanted
    grad_chunk: int = 0
    grad_offsets: List[int] = field(default_factory=list)  # of each piece, -1 without
    grad_parts: List[Tuple[int, int, int]] = field(default_factory=list)  # compact: (tensor, offset, elements) of this rank's, in order
    entered: bool = False  # modules hold the gathered parameters
    used: bool = False  # was gathered, ever
    reduce_unused: bool = False  # is reduced in every backward pass, with zeros for what has no gradient
    in_backward: bool = False
    reduced: int = 0  # gradients that had arrived in this backward pass when they were reduced
    uses: int = 0  # forward calls that the backward pass has not come to
    hooks: list = field(default_factory=list)
    kept: list = field(default_factory=list)  # memory that a reduction under way uses
    residual: Optional[torch.Tensor] = None  # quantised reductions: what rounding has lost, see rc_engine_set_residual
    grads: list = field(default_factory=list)  # by tensor: what its sharded parameter gets as gradient, or None; FSDP2
    giver: Any = None  # FSDP1: what gives parameters their gradients
    grad_users: Callable[[], bool] = lambda: False  # whether the face's gradients are set or held by others


class Model:
    """units: in the order of their definition. levels: a levels.Levels. offload: on a GPU, shards and their gradients lie in memory of the
    host, where optimizers step them. face: has unit_reduce(model, unit), which calls
    Model.reduce with the rule of the face, unit_done(model, unit) after each unit's backward, and backward_done(model) after the last."""

    def __init__(self, device: torch.device, levels, specs: List[UnitSpec], face, offload: bool = False):
        self.device = device
        self.cuda = device.type == "cuda"
        self.offload = offload and self.cuda
        self.levels = levels
        self.comms = levels.comms
        self.ranks = levels.ranks
        self.rank = levels.rank
        self.face = face
        self.units: List[Unit] = []
        self._holders = {}  # slot -> the unit that has entered
        self._in_backward = False
        self._steps = 0  # of optimizers, since the last pass
        self._seen = 0  # passes before which optimizers stepped
        self._kept = False  # it is decided which units stay gathered
        self._unreduced = False  # the last pass ended without a reduction
        self._build(specs)
        self._reductions = 0  # of this backward pass
        self._counts_steps = bool(levels.keep or levels.way.secondary)
        if self._counts_steps:
            self._count_steps()
        progress.begin()

    def __del__(self):
        for unit in self.__dict__.get("units", ()):
            self.engine.bind(unit.index, [], None)  # engine, tensor, hook, engine: a cycle that Python's collector does not see through

    # Building

    def _build(self, specs):
        layouts = [self._layout(s) for s in specs]
        staging = None
        staging_bytes = 0
        stream = None
        levels = self.levels
        if self.cuda:
            staging_bytes = max([s.param_dtype.itemsize * c * self.ranks for s, (c, _, _, _) in zip(specs, layouts)
                                 if len(s.pieces) > 4 and levels.gather is not None], default=0)
            if staging_bytes:
                self._staging = staging = torch.empty(staging_bytes, dtype=torch.uint8, device=self.device)
            stream = torch._C._cuda_getCurrentRawStream
        self.engine = _train.Engine(self.device.index if self.cuda else -1, levels.gather, levels.reduce, levels.replicate,
                                    staging.data_ptr() if staging is not None else 0, staging_bytes, stream, levels.gather_between,
                                    levels.reduce_between, levels.way.quantize_gather, levels.way.quantize_reduce, levels.way.secondary,
                                    self.offload)
        shards = self._shards(specs, layouts)
        cast = 0
        if not self.cuda and levels.way.levels == 1:
            bytes_ = max([s.param_dtype.itemsize * c for s, (c, _, _, _) in zip(specs, layouts) if s.param_dtype != s.dtype], default=0)
            if bytes_:
                cast = levels.window(bytes_).data_ptr()
        ring = [(s, l) for s, l in zip(specs, layouts) if not s.alone]
        slot_bytes = max([s.param_dtype.itemsize * l[2] for s, l in ring], default=0)
        slots = []
        for _ in range(min(RING_SLOTS, len(ring))):
            slots.append((self.engine.add_slot(), torch.empty(slot_bytes, dtype=torch.uint8, device=self.device)))
        self._make_buckets(specs, layouts)
        turn = 0
        for spec, layout, shard in zip(specs, layouts, shards):
            chunk, offsets, full_count, full_offsets = layout
            if spec.alone:
                slot, memory = self.engine.add_slot(), torch.empty(full_count * spec.param_dtype.itemsize, dtype=torch.uint8, device=self.device)
            else:
                slot, memory = slots[turn % len(slots)]
                turn += 1
            full = memory[: full_count * spec.param_dtype.itemsize].view(spec.param_dtype)
            first, count = self._bucket_of(spec)
            pieces = [(o, f, p.count, p.total) for p, o, f in zip(spec.pieces, offsets, full_offsets)]
            index = self.engine.add_unit(spec.name, pieces, chunk, str(spec.dtype), str(spec.param_dtype), shard.data_ptr(),
                                         cast if spec.param_dtype != spec.dtype else 0, full.data_ptr(), slot, first, count)
            gathered = [self._gathered(spec, full, full_offsets, t) for t in spec.tensors]
            unit = Unit(spec, index, chunk, offsets, shard, full, gathered, slot, first, spec.alone and self.cuda)
            self.units.append(unit)
            self.follow_trained(unit)
        levels.furnish(self, specs, layouts)

    def _layout(self, spec):
        """(elements of a chunk, each piece's place in it, elements of the gathered unit, each piece's place in that)."""
        chunk = full = 0
        offsets, full_offsets = [], []
        for piece in spec.pieces:
            offsets.append(chunk)
            full_offsets.append(full)
            chunk += up(piece.count, self.levels.way.align)
            full += up(piece.count * self.ranks)
        return chunk, offsets, full, full_offsets

    def _shards(self, specs, layouts):
        sizes = [up(c * s.dtype.itemsize, 64) for s, (c, _, _, _) in zip(specs, layouts)]
        if self.cuda and not self.offload:
            memory = [torch.zeros(n, dtype=torch.uint8, device=self.device) for n in sizes]
        else:
            window, memory, at = pinned(sum(sizes)) if self.offload else self.levels.window(sum(sizes)), [], 0
            for n in sizes:
                memory.append(window[at : at + n])
                at += n
        return [m.view(s.dtype)[:c] for m, s, (c, _, _, _) in zip(memory, specs, layouts)]

    def _make_buckets(self, specs, layouts):
        """CPU: one bucket for all, in a window. GPU: some in turn for units that share slots; the others get memory when they reduce."""
        sizes = [(s.alone, s.reduce_dtype.itemsize * (c + self.levels.way.align * s.compact)) for s, (c, _, _, _) in zip(specs, layouts)]
        largest = max([n for alone, n in sizes if not (alone and self.cuda)], default=0)
        self._ring = [self.engine.add_bucket() for _ in range(RING_BUCKETS if self.cuda else 1)]
        for bucket in self._ring if largest else ():
            if self.cuda:
                packed = torch.empty(largest * self.ranks, dtype=torch.uint8, device=self.device)
                reduced = torch.empty(largest, dtype=torch.uint8, device=self.device)
            else:
                packed, reduced = self.levels.window(largest * self.ranks, reduce=True), torch.empty(largest, dtype=torch.uint8)
            self.engine.set_bucket(bucket, packed.data_ptr(), packed.numel(), reduced.data_ptr(), reduced.numel())
            self.__dict__.setdefault("_buckets", []).append((packed, reduced))

    def _bucket_of(self, spec):
        if spec.alone and self.cuda:
            return self.engine.add_bucket(), 1
        return self._ring[0], len(self._ring)

    def _gathered(self, spec, full, full_offsets, tensor):
        start = full_offsets[tensor.piece] + tensor.offset
        view = full[start : start + tensor.shape.numel()].view(tensor.shape)
        return torch.nn.Parameter(view, requires_grad=tensor.requires_grad)

    def piece_of(self, unit: Unit, piece: int) -> torch.Tensor:
        """This rank's chunk of a piece, padding included: a view of the shard."""
        return unit.shard[unit.offsets[piece] : unit.offsets[piece] + unit.spec.pieces[piece].count]

    def follow_trained(self, unit: Unit) -> bool:
        """Lays out gradients for what is trained now. True when that has changed."""
        spec = unit.spec
        trained = tuple(t.sharded.requires_grad for t in spec.tensors)
        if trained == unit.trained:
            return False
        unit.trained = trained
        chunk, offsets, pieces = 0, [], []
        if spec.flat:
            offsets = [0]
            if spec.compact:
                pieces, chunk, unit.grad_parts = self._compact(spec, trained)
            elif any(trained):
                chunk = spec.pieces[0].count  # not aligned: chunks follow each other as in the flat parameter
                pieces = [(t.offset, 0, t.shape.numel(), t.shape.numel()) for t, on in zip(spec.tensors, trained) if on]
        else:
            on_pieces = {t.piece for t, on in zip(spec.tensors, trained) if on}
            for i, piece in enumerate(spec.pieces):
                offsets.append(chunk if i in on_pieces else -1)
                if i in on_pieces:
                    pieces.append((chunk, 0, piece.count, piece.total))
                    chunk += up(piece.count, self.levels.way.align)
        unit.grad_chunk, unit.grad_offsets = chunk, offsets
        unit.grad = self.new_gradient(unit)  # begin() frees its storage until a reduction wants it
        self.engine.set_gradient(unit.index, pieces, chunk, spec.flat)
        self.levels.set_residual(self.engine, unit)
        self._bind(unit)
        return True

    def new_gradient(self, unit: Unit) -> torch.Tensor:
        if self.offload:
            return pinned(unit.grad_chunk * unit.spec.dtype.itemsize)[: unit.grad_chunk * unit.spec.dtype.itemsize].view(unit.spec.dtype)
        return torch.empty(unit.grad_chunk, dtype=unit.spec.dtype, device=self.device)

    def _bind(self, unit: Unit) -> None:
        spec, trained = unit.spec, unit.trained
        for hook in unit.hooks:
            hook.remove()
        order = iter(range(len(spec.tensors)))
        bound = [(g, t.sharded, t.places, next(order) if on else -1) for g, t, on in zip(unit.gathered, spec.tensors, trained)]
        model = weakref.ref(self)
        self.engine.bind(unit.index, bound, lambda index: model()._complete(index))
        hook = self.engine.gradient_hook(unit.index)
        for tensor, on in zip(unit.gathered, trained):
            tensor.requires_grad_(on)
        unit.hooks = [t.register_post_accumulate_grad_hook(hook) for t, on in zip(unit.gathered, trained) if on]

    def move_out(self, unit: Unit) -> None:
        """Gives a unit that shares memory for gathered parameters memory of its own, for good. It is not in use."""
        spec = unit.spec
        _, _, count, offsets = self._layout(spec)
        unit.full = torch.empty(count, dtype=spec.param_dtype, device=self.device)
        slot = self.engine.add_slot()
        self.engine.move(unit.index, slot, unit.full.data_ptr())
        unit.slot, spec.alone = slot, True
        gathered = [self._gathered(spec, unit.full, offsets, t) for t in spec.tensors]
        for new, old in zip(gathered, unit.gathered):
            new.grad = old.grad  # of passes without reduction
        unit.gathered = gathered
        self._bind(unit)
        if unit.grads:
            self.engine.own_gradients(unit.index, unit.grads)

    def _compact(self, spec, trained):
        """(pieces, elements of a chunk, parts of this rank): trained tensors of a flat parameter, cut where ranks' shards meet. Each rank's are
        packed together, aligned to each other as the tensor's gradient is."""
        count, align = spec.pieces[0].count, 16 // spec.param_dtype.itemsize
        filled = [0] * self.ranks
        cuts, parts = [], []
        for i, (tensor, on) in enumerate(zip(spec.tensors, trained)):
            done, whole = 0, tensor.shape.numel() if on else 0
            if on and not whole:
                cuts.append((0, 0, 0, 0))
            while done < whole:
                rank = (tensor.offset + done) // count
                n = min(whole - done, (rank + 1) * count - tensor.offset - done)
                at = filled[rank] + (done - filled[rank]) % align
                cuts.append((rank, at, done, n))
                if rank == self.rank:
                    parts.append((i, at, n))
                filled[rank] = at + n
                done += n
        chunk = up(max(filled))
        return [(rank * chunk + at, skipped, n, n) for rank, at, skipped, n in cuts], chunk, parts

    # Running

    def begin(self) -> None:
        """The forward pass of the root begins: shards may have changed."""
        for watcher in watchers:
            watcher(self)
        self.free_gradients()
        for unit in self.units:
            unit.uses = 0
        # Between passes whose gradients are only summed up, parameters are not changed but by an optimizer.
        same = self._unreduced and not self._steps
        self._seen += bool(self._steps)
        self._steps, self._unreduced = 0, False
        if self._seen == KEEP_AFTER and self.levels.keep and not self._kept:
            self._keep_gathered()
        self.engine.begin(same)
        self._in_backward = False

    def changed(self) -> None:
        """Shards were written by other than optimizers."""
        self._unreduced = False

    def _count_steps(self) -> None:
        model = weakref.ref(self)

        def stepped(*_):
            if model() is not None:
                model()._steps += 1

        weakref.finalize(self, register_optimizer_step_post_hook(stepped).remove)

    def _keep_gathered(self) -> None:
        """Units get memory of their own while that is free: they need no second gather for backward. The same ones on all ranks."""
        self._kept = True
        room = self.levels.least_free()
        if self.levels.keep != "auto":
            room = min(room, self.levels.keep)
        shared = [u for u in self.units if not u.spec.alone and not u.entered]
        kept = [shared[i] for i in stays([self._layout(u.spec)[2] * u.spec.param_dtype.itemsize for u in shared], room)]
        for unit in kept:
            self.move_out(unit)
        log.info("%d of %d units stay gathered between forward and backward: %d bytes were free", len(kept), len(self.units), room)

    def free_gradients(self) -> None:
        """Gives back the memory of gradients that nobody has."""
        for unit in self.units:
            if unit.grad_chunk and not unit.grad_users() and not unit.kept and not self.offload:
                unit.grad.untyped_storage().resize_(0)

    def take_gradient(self, unit: Unit) -> bool:
        """Gives the unit's gradient its memory. True when it had none: nothing is in it."""
        storage = unit.grad.untyped_storage()
        if storage.size():
            return False
        storage.resize_(unit.grad_chunk * unit.spec.dtype.itemsize)
        return True

    def enter(self, unit: Unit, backward: bool, prefetch: bool = True) -> None:
        holder = self._holders.setdefault(unit.slot, unit)
        if holder is not unit and not (unit.uses or unit.in_backward or unit.entered):
            log.debug("unit %s is used inside %s: it gets memory of its own", unit.spec.name, holder.spec.name)
            self.move_out(unit)
        self.engine.enter(unit.index, backward, prefetch)
        self._holders[unit.slot] = unit
        unit.entered = unit.used = True

    def leave(self, unit: Unit) -> None:
        if unit.entered:
            unit.entered = False
            self._holders.pop(unit.slot, None)
            self.engine.leave(unit.index)

    def begin_backward(self) -> None:
        """The first of a backward pass queues the end of it."""
        if not self._in_backward:
            self._in_backward = True
            self.engine.expect()
            self._reductions = 0
            for u in self.units:
                u.reduced = 0
            torch.autograd.Variable._execution_engine.queue_callback(self._end_backward)

    @staticmethod
    def first_of_pass(seen: list) -> bool:
        """Whether this backward pass comes to a forward call for the first time; seen: kept for each call, empty at first."""
        if torch.is_grad_enabled():
            raise NotImplementedError("backward with create_graph=True is not served by raylet_c: the gathered parameters, which such a graph "
                                      "needs, lie in memory that is used again")
        task = torch._C._current_graph_task_id()
        if seen == [task]:
            return False
        seen[:] = [task]
        return True

    def pre_backward(self, unit: Unit, prefetch: bool = True) -> None:
        """The gradient of an output of one of the unit's forward calls is there."""
        self.begin_backward()
        unit.uses = max(0, unit.uses - 1)
        if unit.in_backward and unit.entered:
            return
        unit.in_backward = True
        self._settle(unit)
        self.enter(unit, True, prefetch)

    def _settle(self, unit: Unit) -> None:
        """Autograd goes backward in order, so what is not done when it comes to this unit has parameters without gradients (perhaps on this
        rank only: reductions have to come in the same order on all), is used again, or holds this unit."""
        for other in self.units:
            if other.in_backward and other is not unit:
                if not unit.spec.alone and not other.spec.alone:
                    self.leave(other) if other.uses else self._unit_end(other)
                elif other.index > unit.index and not other.uses:
                    self._unit_reduce(other)

    def _complete(self, index: int) -> None:
        """All gradients of a unit have arrived. Frozen parameters may still be wanted for the gradient of the input."""
        unit = self.units[index]
        if unit.spec.alone:
            self._settle(unit)
        self._unit_reduce(unit)
        if all(unit.trained) and not unit.spec.alone:
            self._unit_end(unit)

    def _unit_reduce(self, unit: Unit) -> None:
        """Reduces what has arrived. More may come later, from another use of the unit: that is added at the end."""
        arrived = self.engine.arrived(unit.index)
        if arrived > unit.reduced:
            unit.reduced = arrived
            self.face.unit_reduce(self, unit)

    def _unit_end(self, unit: Unit) -> None:
        if unit.in_backward:
            unit.in_backward = False
            self._unit_reduce(unit)
            self.face.unit_done(self, unit)

    def _end_backward(self) -> None:
        for unit in reversed(self.units):
            if unit.in_backward or self.engine.arrived(unit.index) > unit.reduced:
                unit.in_backward = True
                self._unit_end(unit)
            elif unit.reduce_unused and unit.used and not unit.reduced:
                self.face.unit_reduce(self, unit)
        self.finish()
        for unit in self.units:
            if unit.kept:
                unit.kept.clear()
                self.engine.set_bucket(unit.first_bucket, 0, 0, 0, 0)
        self._in_backward = False
        self._unreduced = self._counts_steps and not self._reductions
        self.face.backward_done(self)

    def finish(self) -> None:
        """All gradients are there: for what follows on the current stream; for the host, where they are on the host."""
        self.engine.finish()
        if self.offload:
            torch.cuda.current_stream(self.device).synchronize()

    def reduce(self, unit: Unit, dtype: torch.dtype, mean: bool, before: float, after: float, replicate: bool, add: bool, grads=None) -> None:
        """The unit's gradients into its shard's gradient; see rc_reduce_rule."""
        if not unit.grad_chunk:
            return
        self._reductions += 1
        if self.take_gradient(unit) and add:
            unit.grad.zero_()
        if unit.own_bucket:
            packed = torch.empty(unit.grad_chunk * self.ranks, dtype=dtype, device=self.device)
            wanted = add or self.offload or dtype != unit.spec.dtype
            reduced = torch.empty(unit.grad_chunk if wanted else 0, dtype=dtype, device=self.device)
            self.engine.set_bucket(unit.first_bucket, packed.data_ptr(), packed.nbytes, reduced.data_ptr(), reduced.nbytes)
            unit.kept += [packed, reduced]
        self.engine.reduce(unit.index, str(dtype), mean, before, after, replicate, unit.grad.data_ptr(), add, grads)

    def reset(self) -> None:
        """After an exception in the middle of a step: sharded everywhere, gradients of the step are lost."""
        self.changed()
        self.engine.reset()
        self._holders.clear()
        for unit in self.units:
            unit.entered = unit.in_backward = False
            unit.uses = unit.reduced = 0
            for tensor in unit.gathered:
                tensor.grad = None
        self._in_backward = False
