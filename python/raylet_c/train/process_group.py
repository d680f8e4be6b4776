"""The torch.distributed backend "raylet_c": CPU tensors, over shared memory on one host and over
libfabric between hosts.

    import raylet_c.train.process_group
    torch.distributed.init_process_group("raylet_c")

Collectives are done when the call returns, async_op or not; sends and receives run in threads. Sums of floating point numbers are made
in the order of ranks, so every run gives the same bits. What is missing raises NotImplementedError with its name.
"""
from __future__ import annotations

import queue
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from raylet_c import _train
from raylet_c.train.comm import of_cpu

_SUMMED = {torch.float32, torch.float64, torch.float16, torch.bfloat16}  # in C; the rest is gathered and reduced by torch
_REDUCTIONS = {
    dist.ReduceOp.SUM: lambda x: x.sum(0, dtype=x.dtype),
    dist.ReduceOp.PRODUCT: lambda x: x.prod(0, dtype=x.dtype),
    dist.ReduceOp.MAX: lambda x: x.amax(0),
    dist.ReduceOp.MIN: lambda x: x.amin(0),
    dist.ReduceOp.BAND: lambda x: _fold(torch.bitwise_and, x),
    dist.ReduceOp.BOR: lambda x: _fold(torch.bitwise_or, x),
    dist.ReduceOp.BXOR: lambda x: _fold(torch.bitwise_xor, x),
}


def _fold(function, x: torch.Tensor) -> torch.Tensor:
    total = x[0]
    for row in x[1:]:
        total = function(total, row)
    return total


def _done(result) -> dist.Work:
    future = Future()
    future.set_result(result)
    return _create_work_from_future(future)


def _bytes(x: torch.Tensor) -> int:
    return x.numel() * x.element_size()


def _dense(x: torch.Tensor, what: str) -> torch.Tensor:
    """x itself, or a contiguous copy of it."""
    if x.device.type != "cpu" or x.layout != torch.strided:
        raise NotImplementedError(f"raylet_c: {what} of a {x.layout} tensor on {x.device}; it serves dense tensors of the CPU")
    return x.detach().contiguous()


class _Channel:
    """One direction between two ranks, for one tag: a communicator of both and a thread that moves one message after the other."""

    def __init__(self, store: dist.Store, receives: bool, timeout: float):
        self.receives = receives
        self.messages: queue.SimpleQueue[tuple[list[torch.Tensor], Future]] = queue.SimpleQueue()
        # A daemon: a message that nobody takes does not keep the process from ending.
        threading.Thread(target=self._run, args=(store, timeout), daemon=True).start()

    def move(self, tensors: list[torch.Tensor]) -> dist.Work:
        future = Future()
        self.messages.put((tensors, future))
        return _create_work_from_future(future)

    def _run(self, store: dist.Store, timeout: float) -> None:
        comm = None
        while True:
            tensors, future = self.messages.get()
            try:
                if comm is None:
                    comm = of_cpu(store, int(self.receives), 2, timeout)
                for tensor in tensors:
                    self._move_one(comm, tensor)
                future.set_result(tensors)
            except Exception as e:
                future.set_exception(e)

    def _move_one(self, comm: _train.Comm, tensor: torch.Tensor) -> None:
        whole = _dense(tensor, "message")
        comm.broadcast(whole.data_ptr(), _bytes(whole), 0, phase="receive" if self.receives else "send")
        if self.receives and whole.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(whole)


class ProcessGroup(dist.ProcessGroup):
    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta):
        super().__init__(rank, size)
        self._store, self._rank, self._size = store, rank, size
        self.seconds = timeout.total_seconds()
        self._comm: _train.Comm | None = None  # connected by the first call: many groups are made and never used
        self._lock = threading.RLock()
        self._channels: dict[tuple[int, int, int], _Channel] = {}

    def size(self) -> int:
        return self._size

    def rank(self) -> int:
        return self._rank

    def getBackendName(self) -> str:
        return "raylet_c"

    @property
    def group_name(self) -> str:
        return dist.distributed_c10d._world.pg_names[self]

    def _get_backend_name(self) -> str:
        return "raylet_c"

    def comm(self) -> _train.Comm:
        with self._lock:
            if self._comm is None:
                self._comm = of_cpu(self._store, self._rank, self._size, self.seconds)
            return self._comm

    def shutdown(self) -> None:
        with self._lock:
            if self._comm is not None:
                self._comm.close()

    def abort(self) -> None:
        if self._comm is not None:
            self._comm.abort("the process group was aborted")

    # What the operations are made of

    def _gather(self, x: torch.Tensor, what: str) -> torch.Tensor:
        """[ranks, *x.shape] of all ranks' x."""
        x = _dense(x, what)
        out = torch.empty((self._size, *x.shape), dtype=x.dtype)
        with self._lock:
            self.comm().all_gather(x.data_ptr(), out.data_ptr(), _bytes(x), unit=what)
        return out

    def _reduce_gathered(self, x: torch.Tensor, op, what: str) -> torch.Tensor:
        for known, function in _REDUCTIONS.items():
            if op == known:
                return function(self._gather(x, what))
        raise NotImplementedError(f"raylet_c: {what} with {op} of {x.dtype}")

    def _reduce(self, x: torch.Tensor, op, what: str) -> torch.Tensor:
        """A tensor with the reduction of all ranks' x; x stays."""
        x = _dense(x, what)
        name = "sum" if op == dist.ReduceOp.SUM else "avg" if op == dist.ReduceOp.AVG else None
        if name is None or x.dtype not in _SUMMED:
            return self._reduce_gathered(x, op, what)
        out = x.clone()
        with self._lock:
            self.comm().all_reduce(out.data_ptr(), out.numel(), str(out.dtype), name, unit=what)
        return out

    def _reduce_scatter(self, out: torch.Tensor, x: torch.Tensor, op, what: str) -> None:
        """x is [ranks, *out.shape] in order of memory."""
        x, target = _dense(x, what), _dense(out, what)
        if x.numel() != out.numel() * self._size or x.dtype != out.dtype:
            raise ValueError(f"{what}: {x.numel()} elements of {x.dtype} for {self._size} times {out.numel()} of {out.dtype}")
        name = "sum" if op == dist.ReduceOp.SUM else "avg" if op == dist.ReduceOp.AVG else None
        if name is None or x.dtype not in _SUMMED:
            target = self._reduce_gathered(x.view(self._size, -1), op, what)[self._rank].view(out.shape)
        else:
            with self._lock:
                self.comm().reduce_scatter(x.data_ptr(), target.data_ptr(), out.numel(), str(x.dtype), name, unit=what)
        if target.data_ptr() != out.data_ptr():
            out.detach().copy_(target)

    def _broadcast(self, x: torch.Tensor, root: int, what: str) -> None:
        whole = _dense(x, what)
        with self._lock:
            self.comm().broadcast(whole.data_ptr(), _bytes(whole), root, unit=what)
        if whole.data_ptr() != x.data_ptr():
            x.detach().copy_(whole)

    # torch's operations, by the names under which its versions call them

    def allreduce(self, tensors, opts=None):
        opts = opts or dist.AllreduceOptions()
        for x in tensors:
            x.detach().copy_(self._reduce(x, opts.reduceOp, "all_reduce"))
        return _done(tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        return self.allreduce(tensors, opts or dist.AllreduceCoalescedOptions())

    def reduce(self, tensors, opts=None):
        opts = opts or dist.ReduceOptions()
        for x in tensors:
            total = self._reduce(x, opts.reduceOp, "reduce")
            if self._rank == opts.rootRank:
                x.detach().copy_(total)
        return _done(tensors)

    def broadcast(self, tensors, opts=None):
        for x in tensors:
            self._broadcast(x, opts.rootRank if opts else 0, "broadcast")
        return _done(tensors)

    def allgather(self, output_tensors, input_tensors, opts=None):
        for outputs, x in zip(output_tensors, input_tensors):
            for out, part in zip(outputs, self._gather(x, "all_gather")):
                out.detach().copy_(part)
        return _done(output_tensors)

    def allgather_coalesced(self, output_lists, input_list, opts=None):
        return self.allgather(output_lists, input_list, opts)

    def _allgather_base(self, output, input, opts=None):
        x, target = _dense(input, "all_gather"), _dense(output, "all_gather")
        if target.numel() != x.numel() * self._size or x.dtype != target.dtype:
            raise ValueError(f"all_gather: {x.numel()} elements of {x.dtype} of {self._size} ranks into {target.numel()} of {target.dtype}")
        with self._lock:
            self.comm().all_gather(x.data_ptr(), target.data_ptr(), _bytes(x), unit="all_gather")
        if target.data_ptr() != output.data_ptr():
            output.detach().copy_(target)
        return _done(output)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, x in zip(outputs, inputs):
            self._allgather_base(output, x, opts)
        return _done(outputs)

    def reduce_scatter(self, output_tensors, input_tensors, opts=None):
        opts = opts or dist.ReduceScatterOptions()
        for out, inputs in zip(output_tensors, input_tensors):
            self._reduce_scatter(out, torch.stack([_dense(x, "reduce_scatter") for x in inputs]), opts.reduceOp, "reduce_scatter")
        return _done(output_tensors)

    def _reduce_scatter_base(self, output, input, opts=None):
        self._reduce_scatter(output, input, (opts or dist.ReduceScatterOptions()).reduceOp, "reduce_scatter")
        return _done(output)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts=None):
        for output, x in zip(outputs, inputs):
            self._reduce_scatter_base(output, x, opts)
        return _done(outputs)

    def gather(self, output_tensors, input_tensors, opts=None):
        root = opts.rootRank if opts else 0
        for i, x in enumerate(input_tensors):
            everyone = self._gather(x, "gather")
            if self._rank == root:
                for out, part in zip(output_tensors[i], everyone):
                    out.detach().copy_(part)
        return _done(output_tensors)

    def scatter(self, output_tensors, input_tensors, opts=None):
        root = opts.rootRank if opts else 0
        for i, out in enumerate(output_tensors):
            if self._rank == root:
                whole = torch.stack([_dense(x, "scatter") for x in input_tensors[i]])
            else:
                whole = torch.empty((self._size, *out.shape), dtype=out.dtype)
            self._broadcast(whole, root, "scatter")
            out.detach().copy_(whole[self._rank])
        return _done(output_tensors)

    def alltoall(self, output_tensors, input_tensors, opts=None):
        """Every rank gathers what all send, and takes its part: right for the few bytes that ranks of one host exchange so."""
        flat = torch.cat([_dense(x, "all_to_all").view(-1) for x in input_tensors])
        sizes = [x.numel() for x in input_tensors]
        for out, part in zip(output_tensors, self._exchange(flat, sizes)):
            out.detach().copy_(part.view(out.shape))
        return _done(output_tensors)

    def alltoall_base(self, output, input, output_splits, input_splits, opts=None):
        x = _dense(input, "all_to_all")
        row = x.numel() // x.shape[0] if x.dim() and x.shape[0] else 1
        rows = list(input_splits) or [x.shape[0] // self._size] * self._size
        parts = self._exchange(x.view(-1), [n * row for n in rows])
        output.detach().copy_(torch.cat(parts).view(output.shape))
        return _done(output)

    def _exchange(self, flat: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
        """flat is what this rank sends, sizes[r] elements of it to rank r; returns what every rank sends to this one."""
        everyone = self._gather(torch.tensor(sizes, dtype=torch.int64), "all_to_all")
        padded = torch.zeros(int(everyone.sum(1).max()), dtype=flat.dtype)
        padded[: flat.numel()] = flat
        sent = self._gather(padded, "all_to_all")
        parts = []
        for r in range(self._size):
            begin = int(everyone[r, : self._rank].sum())
            parts.append(sent[r, begin : begin + int(everyone[r, self._rank])])
        return parts

    def barrier(self, opts=None):
        with self._lock:
            self.comm().barrier()
        return _done(None)

    def send(self, tensors, dst, tag=0):
        return self._channel(self._rank, dst, tag).move(tensors)

    def recv(self, tensors, src, tag=0):
        return self._channel(src, self._rank, tag).move(tensors)

    def _channel(self, src: int, dst: int, tag: int) -> _Channel:
        if src == dst or not (0 <= src < self._size and 0 <= dst < self._size):
            raise ValueError(f"a message from rank {src} to rank {dst} of {self._size}")
        with self._lock:
            key = src, dst, tag
            if key not in self._channels:
                store = dist.PrefixStore("raylet_c/%d-%d-%d" % key, self._store)
                self._channels[key] = _Channel(store, dst == self._rank, self.seconds)
            return self._channels[key]

    def recv_anysource(self, tensors, tag=0):
        raise NotImplementedError("raylet_c: recv without a source (recv_anysource)")

    # Names of torch 2.13 and later
    all_gather_single = _allgather_base
    all_gather_single_coalesced = allgather_into_tensor_coalesced
    reduce_scatter_single = _reduce_scatter_base
    reduce_scatter_single_coalesced = reduce_scatter_tensor_coalesced
    all_to_all_single = alltoall_base


def register() -> None:
    """Makes the backend known to torch; again is no error."""
    if not hasattr(dist.Backend, "RAYLET_C"):
        dist.Backend.register_backend("raylet_c", ProcessGroup, devices=["cpu"])


register()
