"""The nccl transport on GPUs: every operation against torch.distributed, in a CUDA graph too; faults; times. For 2 GPUs or more:

    torchrun --nproc-per-node 2 tests/train/nccl_check.py [--no-faults] [--no-times]

RAYLET_C_MODULE names the folder of _train.abi3.so if it is not build/raylet_c. TAP on stdout of rank 0.
"""
import argparse
import os
import statistics
import sys
import time

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python")]

import _ranks  # noqa: E402

_ranks.load_module()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from raylet_c.train import comm as comms  # noqa: E402

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
COUNTS = (0, 1, 7, 1000, 65537, 4 << 20)


def stream():
    return torch.cuda.current_stream().cuda_stream


def tensor_at(address, count):
    """GPU memory of f32 as a tensor; it does not keep it alive."""

    class Memory:
        __cuda_array_interface__ = {"shape": (count,), "typestr": "<f4", "data": (address, False), "version": 3}

    return torch.as_tensor(Memory(), device="cuda")


def connect(timeout=60.0):
    return comms.connect(None, "cuda", timeout)


def raised(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except Exception as e:
        return e
    return None


def broken(comm, seconds):
    """Why the communicator is broken, once it is; None when it is whole after so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        error = raised(comm.check)
        if error:
            return error
        time.sleep(0.02)


def operations():
    comm = connect()
    rank, size = comm.rank, comm.size
    assert comm.transport.startswith("nccl ") and (rank, size) == (dist.get_rank(), dist.get_world_size())
    print("# %s" % comm.transport, flush=True)
    torch.manual_seed(rank)
    for count in COUNTS:
        for dtype in TYPES:
            x = torch.randn(count * size, device="cuda").to(dtype)
            ours, theirs = torch.empty(count, device="cuda", dtype=dtype), torch.empty(count, device="cuda", dtype=dtype)
            for name, op in (("sum", dist.ReduceOp.SUM), ("avg", dist.ReduceOp.AVG)):
                comm.reduce_scatter(x.data_ptr(), ours.data_ptr(), count, str(dtype), name, stream(), "layers.0", "reduce")
                if count:
                    dist.reduce_scatter_tensor(theirs, x, op)
                assert torch.equal(ours, theirs), (count, dtype, name)
                a, b = x.clone(), x.clone()
                comm.all_reduce(a.data_ptr(), a.numel(), str(dtype), name, stream=stream())
                if count:
                    dist.all_reduce(b, op)
                    assert torch.equal(a, b), (count, dtype, name)
            whole, want = (torch.empty(count * size, device="cuda", dtype=dtype) for _ in range(2))
            part = x[:count].clone()
            comm.all_gather(part.data_ptr(), whole.data_ptr(), count * part.element_size(), stream(), "layers.0", "forward")
            if count:
                dist.all_gather_into_tensor(want, part)
                assert torch.equal(whole, want), (count, dtype)
            for root in range(size):
                a = part.clone()
                comm.broadcast(a.data_ptr(), count * part.element_size(), root, stream=stream())
                b = part.clone()
                if count:
                    dist.broadcast(b, root)
                assert torch.equal(a, b), (count, dtype, root)
    # In place, and as one launch.
    whole = torch.zeros(size * 1000, device="cuda")
    whole[rank * 1000 : (rank + 1) * 1000] = rank + 1
    total = torch.ones(10, device="cuda")
    comm.group_begin()
    comm.all_gather(whole.data_ptr() + rank * 4000, whole.data_ptr(), 4000, stream=stream())
    comm.all_reduce(total.data_ptr(), 10, "f32", stream=stream())
    comm.group_end()
    assert torch.equal(whole, torch.arange(1.0, size + 1, device="cuda").repeat_interleave(1000))
    assert torch.equal(total, torch.full((10,), float(size), device="cuda"))
    comm.barrier()
    assert isinstance(raised(comm.gather_pieces, 0, 0, 4, [], 0), NotImplementedError)
    comm.check()
    comm.close()


def windows():
    """A registered window gathers and reduces as other memory does; closing and making communicators leaves no memory."""
    free = None
    for i in range(4):
        comm = connect()
        try:
            window = comm.window(8 << 20)
        except NotImplementedError as e:
            print("# windows are not served: %s" % e, flush=True)
            return
        send = torch.full((1 << 20,), comm.rank + 1.0, device="cuda")
        part = torch.empty((1 << 20) // comm.size, device="cuda")
        # Both sides in the window: the send part behind, the whole in front.
        half = 4 << 20
        memory = tensor_at(window.address, (8 << 20) // 4)
        memory[1 << 20 : (1 << 20) + part.numel()].copy_(send[: part.numel()])
        comm.all_gather(window.address + half, window.address, half // comm.size, stream=stream(), unit="window")
        whole = memory[: 1 << 20].clone()
        want = torch.arange(1.0, comm.size + 1, device="cuda").repeat_interleave((1 << 20) // comm.size)
        assert torch.equal(whole[: want.numel()], want)
        comm.reduce_scatter(window.address, part.data_ptr(), part.numel(), "f32", stream=stream())
        assert torch.equal(part, torch.full_like(part, comm.size * (comm.rank + 1.0)))
        torch.cuda.synchronize()
        del window, memory
        comm.close()
        if i == 1:
            free = torch.cuda.mem_get_info()[0]
    assert torch.cuda.mem_get_info()[0] >= free - (64 << 20), (free, torch.cuda.mem_get_info()[0])


def graph():
    """Captured and replayed, with the watchdog at work on other calls meanwhile."""
    comm = connect()
    size = comm.size
    x = torch.ones(1 << 20, device="cuda")
    whole = torch.empty(size << 20, device="cuda")
    part = torch.empty(1 << 20, device="cuda")

    def step():
        comm.all_gather(x.data_ptr(), whole.data_ptr(), 4 << 20, stream=stream(), unit="layers.1", phase="forward")
        comm.reduce_scatter(whole.data_ptr(), part.data_ptr(), 1 << 20, "f32", "sum", stream=stream(), unit="layers.1", phase="reduce")
        x.copy_(part)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    comm.all_reduce(part.data_ptr(), 1, "f32", stream=stream())  # in flight while the capture goes on
    with torch.cuda.graph(graph):
        step()
        time.sleep(0.5)  # the watchdog looks several times during the capture
    x.fill_(1)
    for _ in range(3):
        graph.replay()
        comm.watch(stream(), unit="step")
    torch.cuda.synchronize()
    assert torch.equal(x, torch.full_like(x, float(size) ** 3)), x[0]
    comm.check()
    comm.barrier()
    del graph
    comm.close()


def other_size():
    comm = connect(timeout=30)
    x, out = torch.zeros(4096, device="cuda"), torch.zeros(4096, device="cuda")
    first = raised(comm.all_reduce, x.data_ptr(), 1000 + comm.rank, "f32", stream=stream(), unit="layers.7", phase="reduce")
    error = first or broken(comm, 10)
    assert isinstance(error, ValueError), error
    assert "all-reduce of layers.7 (reduce): sizes differ: rank " in str(error) and "rank 0 has 4000 bytes" in str(error), error
    torch.cuda.synchronize()  # what waited on the device has ended
    assert str(raised(comm.all_gather, x.data_ptr(), out.data_ptr(), 4, stream=stream())) == str(error)
    comm.close()


def late():
    dist.barrier()
    comm = connect(timeout=3)
    x = torch.zeros(4096, device="cuda")
    comm.all_reduce(x.data_ptr(), 10, "f32", stream=stream(), unit="layers.4", phase="forward")
    torch.cuda.synchronize()
    if comm.rank != 1:
        comm.reduce_scatter(x.data_ptr(), x.data_ptr(), 10, "f32", stream=stream(), unit="layers.3", phase="reduce")
    begin = time.monotonic()
    error = broken(comm, 15)
    assert isinstance(error, TimeoutError), error
    assert "reduce-scatter of layers.3 (reduce): rank 1 (pid " in str(error), error
    assert "did not come within 3 s; it came last to all-reduce of layers.4 (forward), call 1, and rank " in str(error), error
    assert time.monotonic() - begin < 8
    torch.cuda.synchronize()
    comm.close()


def aborted():
    comm = connect()
    x = torch.zeros(4096, device="cuda")
    comm.all_reduce(x.data_ptr(), 10, "f32", stream=stream())  # the first call connects the ranks, and does not return without all
    if comm.rank == 0:
        comm.all_reduce(x.data_ptr(), 10, "f32", stream=stream())
        comm.abort("the optimizer failed")
    error = broken(comm, 10)
    assert error and "aborted by rank 0 (pid " in str(error) and "the optimizer failed" in str(error), error
    torch.cuda.synchronize()
    comm.close()


def died():
    """Rank 1 has ended before it connects (a child; of torchrun's own ranks none may end): rank 0 is told long before the timeout."""
    if dist.get_rank() != 0:
        return
    import struct

    from raylet_c import _train

    comm = _train.Comm.nccl(0, 2, torch.cuda.current_device(), 60.0)
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    # The blob of a rank that has ended: rank 0's, with rank 1 and the child's pid. magic[8], version, rank, ...
    blob = bytearray(comm.blob())
    struct.pack_into("i", blob, 12, 1)
    at = blob.index(struct.pack("q", os.getpid()))
    struct.pack_into("q", blob, at, child)
    begin = time.monotonic()
    error = raised(comm.connect, [comm.blob(), bytes(blob)])
    assert isinstance(error, ConnectionError) and "connect: rank 1 (pid %d) has died" % child in str(error), error
    assert time.monotonic() - begin < 20


def times():
    comm = connect()
    size = comm.size
    print("# %-16s %10s %14s %14s" % ("", "MiB", "ours us", "torch us"), flush=True)
    for mib in (1, 8, 64, 256):
        count = (mib << 20) // 2 // size
        part = torch.zeros(count, device="cuda", dtype=torch.bfloat16)
        whole = torch.zeros(count * size, device="cuda", dtype=torch.bfloat16)
        pairs = {
            "all-gather": (lambda: comm.all_gather(part.data_ptr(), whole.data_ptr(), count * 2, stream=stream()),
                           lambda: dist.all_gather_into_tensor(whole, part)),
            "reduce-scatter": (lambda: comm.reduce_scatter(whole.data_ptr(), part.data_ptr(), count, "bf16", stream=stream()),
                               lambda: dist.reduce_scatter_tensor(part, whole)),
        }
        for name, calls in pairs.items():
            figures = []
            for call in calls:
                samples = []
                for _ in range(25):
                    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                    dist.barrier()
                    torch.cuda.synchronize()
                    begin.record()
                    call()
                    end.record()
                    end.synchronize()
                    samples.append(begin.elapsed_time(end) * 1e3)
                figures.append(statistics.median(samples[5:]))
            if comm.rank == 0:
                print("# %-16s %10d %14.1f %14.1f" % (name, mib, *figures), flush=True)
    x = torch.zeros(1024, device="cuda")
    begin = time.perf_counter()
    for _ in range(200):
        comm.all_gather(x.data_ptr(), whole.data_ptr(), 64, stream=stream(), unit="layers.0", phase="forward")
    host = (time.perf_counter() - begin) / 200
    torch.cuda.synchronize()
    if comm.rank == 0:
        print("# host time of a call: %.1f us" % (host * 1e6), flush=True)
    comm.close()


CASES = {
    operations: "every operation gives the bits of torch's",
    windows: "windows are registered, work, and are given back",
    graph: "calls are captured into a CUDA graph and replayed",
    other_size: "sizes that differ are named on every rank",
    late: "a rank that does not come is named with its last call",
    aborted: "an abort reaches every rank of the host",
    died: "a rank that has ended is found while connecting",
    times: "times",
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-faults", action="store_true")
    parser.add_argument("--no-times", action="store_true")
    args = parser.parse_args()
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    # gloo tells the outcome, so that a fault in one case does not reach the next; NCCL of torch for comparison.
    dist.init_process_group("cpu:gloo,cuda:nccl")
    failed = count = 0
    for function, sentence in CASES.items():
        if (args.no_faults and function in (other_size, late, aborted, died)) or (args.no_times and function is times):
            continue
        text = raised(function)
        if text is not None:
            import traceback

            text = "".join(traceback.format_exception(text))
            print("# rank %d: %s" % (dist.get_rank(), text.replace("\n", "\n# ")), flush=True)
        bad = torch.tensor([text is not None], dtype=torch.int32)
        dist.all_reduce(bad)
        count += 1
        failed += bool(bad.item())
        if dist.get_rank() == 0:
            print("%sok %d - %s" % ("not " if bad.item() else "", count, sentence), flush=True)
    if dist.get_rank() == 0:
        print("1..%d" % count, flush=True)
    dist.destroy_process_group()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
