"""raylet_c._train.Comm from Python: collectives, windows, errors, life times. python tests/train/comm_test.py; TAP on stdout."""
import gc
import threading
import time

import _ranks


def collectives():
    import torch
    import torch.distributed as dist

    from raylet_c.train import comm as comms

    comm = comms.connect(None, "cpu")
    rank, size = dist.get_rank(), dist.get_world_size()
    assert (comm.rank, comm.size, comm.transport) == (rank, size, "shm")
    mine = torch.arange(1000.0) * (rank + 1)
    everyone = torch.empty(size * 1000)
    comm.all_gather(mine.data_ptr(), everyone.data_ptr(), 4000, unit="layers.0", phase="forward")
    assert torch.equal(everyone, torch.cat([torch.arange(1000.0) * (r + 1) for r in range(size)]))
    total = mine.clone()
    comm.all_reduce(total.data_ptr(), 1000, str(total.dtype))
    assert torch.equal(total, torch.arange(1000.0) * sum(range(1, size + 1)))
    half = torch.full((size * 8,), rank + 1.0, dtype=torch.bfloat16)
    part = torch.empty(8, dtype=torch.bfloat16)
    comm.reduce_scatter(half.data_ptr(), part.data_ptr(), 8, "bf16", "avg")
    assert torch.equal(part, torch.full((8,), (size + 1) / 2, dtype=torch.bfloat16))
    text = torch.tensor([rank], dtype=torch.uint8)
    comm.broadcast(text.data_ptr(), 1, size - 1)
    assert text.item() == size - 1
    comm.barrier()
    comm.group_begin()
    comm.group_end()
    comm.check()
    comm.close()
    try:
        comm.barrier()
    except ValueError as e:
        assert "closed" in str(e)
    else:
        raise AssertionError("a closed communicator was used")


def windows():
    """The tensor of a window keeps its memory, also after everything else is gone."""
    import torch
    import torch.distributed as dist

    from raylet_c.train import comm as comms

    comm = comms.connect(dist.group.WORLD, torch.device("cpu"))
    window = comm.window(4096 * 4)
    assert window.size == 4096 * 4 and window.address % 4096 == 0
    tensor = torch.frombuffer(window.memory, dtype=torch.float32)
    assert tensor.data_ptr() == window.address and not tensor.any()
    tensor.fill_(comm.rank)
    pieces = torch.full((comm.size * 10,), -1.0)
    comm.gather_pieces(window.address, 4096, 4, [(3, 0, 10, comm.size * 10)], pieces.data_ptr())
    assert pieces.tolist() == [float(r) for r in range(comm.size) for _ in range(10)]
    empty = comm.window(0)
    assert len(empty.memory) == 0
    comm.close()
    del window, comm, empty
    gc.collect()
    tensor += 1
    assert tensor.sum().item() == 4096 * (dist.get_rank() + 1)


def errors():
    import torch
    import torch.distributed as dist

    from raylet_c import _train
    from raylet_c.train import comm as comms

    rank = dist.get_rank()
    dist.barrier()  # the limits below are short: the ranks start together
    comm = comms.connect(None, "cpu", timeout=5)
    data = torch.zeros(100)
    try:
        comm.all_reduce(data.data_ptr(), 10 + rank, "f32", unit="layers.7", phase="reduce")
    except ValueError as e:
        told = str(e)
    assert told == "all-reduce of layers.7 (reduce): sizes differ: rank 0 has 40 bytes, rank 1 has 44", told
    try:
        comm.check()
    except ValueError as e:
        assert str(e) == told
    else:
        raise AssertionError("a broken communicator says that all is well")

    late = comms.connect(None, "cpu", timeout=5)
    try:
        if rank == 0:  # the others wait in vain for rank 0, which only asks from time to time
            while True:
                late.check()
                time.sleep(0.01)
        late.barrier(unit="layers.8")
    except TimeoutError as e:
        assert "barrier of layers.8: rank 0 (pid " in str(e) and "did not come within 5 s" in str(e), e

    dist.barrier()
    stopped = comms.connect(None, "cpu", timeout=60)
    if rank == 0:
        threading.Timer(0.2, stopped.abort, ["enough"]).start()
    try:
        if rank == 0:
            while True:
                stopped.check()
                time.sleep(0.01)
        stopped.barrier()
    except RuntimeError as e:
        assert "aborted by rank 0" in str(e) and "enough" in str(e), e

    if rank == 0:  # a second thread is refused while the first one waits
        alone = _train.Comm.shm(0, 2, 0.5)
        other = _train.Comm.shm(1, 2, 0.5)
        seen = []
        waiting = threading.Thread(target=lambda: seen.append(_raised(alone.connect, [alone.blob(), other.blob()])))
        waiting.start()
        while waiting.is_alive() and not seen:
            refused = _raised(alone.barrier)
            if isinstance(refused, RuntimeError):
                assert "another thread" in str(refused), refused
                break
        waiting.join()
        assert isinstance(seen[0], TimeoutError), seen
        assert isinstance(refused, RuntimeError), refused
        assert isinstance(_raised(alone.connect, [b"x", b"y"]), (NotImplementedError, ValueError))
        assert isinstance(_raised(_train.Comm.shm, 3, 2), ValueError)
        assert isinstance(_raised(alone.all_reduce, 0, 1, "int32"), ValueError)


def _raised(call, *args):
    try:
        call(*args)
    except Exception as e:
        return e


def engines():
    """What is wrong raises, and a communicator that was closed stays as long as an engine has it."""
    import torch

    from raylet_c import _train

    comm = _train.Comm.shm(0, 1, 5)
    comm.connect([comm.blob()])
    window = comm.window(4096)
    engine = _train.Engine(-1, comm, comm, None, 0, 0, None)
    slot, bucket, full = engine.add_slot(), engine.add_bucket(), torch.empty(8)
    unit = ["u", [(0, 0, 8, 8)], 8, "f32", "f32", window.address, 0, full.data_ptr(), slot, bucket]
    assert isinstance(_raised(engine.add_unit, *unit[:-1], 2**31 - 1, 1), ValueError)
    assert isinstance(_raised(engine.add_unit, "u", [(2**64 - 4, 0, 8, 8)], *unit[2:], 1), ValueError)
    assert engine.add_unit(*unit, 1) == 0
    engine.set_gradient(0, [(0, 0, 8, 8)], 8, False)
    assert isinstance(_raised(_train.Engine.__new__, _train.Engine), TypeError)
    a, b = torch.nn.Parameter(torch.ones(8)), torch.nn.Parameter(torch.ones(8))
    for places in ((1,), ((1, "w"),), (({},),)):
        assert isinstance(_raised(engine.bind, 0, [(a, b, places, 0)], print), TypeError), places
    for index in (1, -2, 10**6):
        assert isinstance(_raised(engine.bind, 0, [(a, b, (), index)], print), ValueError), index
    engine.bind(0, [(a, b, (), -1)], print)
    assert isinstance(_raised(engine.reduce, 0, "f32", True, 1.0, 1.0, False, full.data_ptr(), False, None), ValueError)
    place = {}
    engine.bind(0, [(a, b, ((place, "w"),), 0)], print)
    torch.frombuffer(window.memory, dtype=torch.float32)[:8] = 3
    engine.begin()
    engine.enter(0, False, False)
    assert place["w"] is a and full.tolist() == [3.0] * 8
    engine.leave(0)
    assert place["w"] is b
    comm.close()
    del window, comm, place
    gc.collect()
    engine.begin()
    del engine
    gc.collect()


def no_nccl():
    """Without a GPU the transport says what is missing."""
    import torch

    from raylet_c import _train

    if torch.cuda.is_available():
        return
    error = _raised(_train.Comm.nccl, 0, 1, 0)
    assert isinstance(error, ConnectionError) and ("NCCL" in str(error) or "libcuda" in str(error)), repr(error)


CASES = {
    collectives: "collectives give what torch computes",
    windows: "the tensor of a window keeps its memory alive",
    errors: "errors are exceptions of the right kind, in the same words on every rank",
    engines: "an engine refuses what is wrong, and outlives close() of its communicator",
    no_nccl: "without a GPU the nccl transport names what is missing",
}


def case(name):
    globals()[name]()


def main():
    _ranks.run_cases("comm_test:case", (2, 3), True, {f.__name__: sentence for f, sentence in CASES.items()}, timeout=120)


if __name__ == "__main__":
    main()
