"""The backend "raylet_c" of torch.distributed against gloo, operation by operation. python tests/train/process_group_test.py; TAP."""
import sys

import _ranks

if "torch" in sys.modules:  # in a rank: torch's own FSDP, and our backend
    _ranks.load_module()


def groups():
    import torch.distributed as dist

    import raylet_c.train.process_group  # noqa: F401

    if not hasattr(groups, "ours"):
        groups.ours = dist.new_group(backend="raylet_c")
    return groups.ours, dist.group.WORLD


def both(call):
    """The results of a call on ours and on gloo, from equal inputs."""
    import torch

    results = []
    for group in groups():
        torch.manual_seed(torch.distributed.get_rank())
        results.append(call(group))
    return results


def same(call, exact=True):
    import torch

    ours, gloo = both(call)
    for a, b in zip(ours, gloo):
        if exact:
            assert torch.equal(a, b), (a, b)
        else:
            torch.testing.assert_close(a, b)


def reductions():
    import torch
    import torch.distributed as dist

    size = dist.get_world_size()
    ops = dist.ReduceOp
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8):
        for op in (ops.SUM, ops.MAX, ops.MIN, ops.PRODUCT) + ((ops.BAND, ops.BOR, ops.BXOR) if dtype == torch.int64 else ()):
            def all_reduce(group):
                x = (torch.randn(1001) * 3).to(dtype) if dtype.is_floating_point else torch.randint(1, 5, (1001,)).to(dtype)
                work = dist.all_reduce(x, op, group=group, async_op=True)
                work.wait()
                return [x]

            if dtype in (torch.float16, torch.bfloat16):  # gloo rounds after every addition
                ours, gloo = both(all_reduce)
                torch.testing.assert_close(ours[0], gloo[0], rtol=2e-2, atol=2e-1)
            else:
                same(all_reduce, exact=not dtype.is_floating_point or op in (ops.MAX, ops.MIN))

    def reduce(group):
        x = torch.randn(5, 7)
        dist.reduce(x, size - 1, group=group)
        return [x] if dist.get_rank() == size - 1 else []

    same(reduce, exact=False)

    def reduce_scatter(group):
        out = torch.empty(3, 4)
        dist.reduce_scatter(out, [torch.randn(3, 4) for _ in range(size)], group=group)
        flat = torch.empty(6)
        dist.reduce_scatter_tensor(flat, torch.randn(6 * size), group=group)
        whole = torch.empty(2, dtype=torch.int64)
        dist.reduce_scatter_tensor(whole, torch.randint(0, 9, (2 * size,)), op=ops.SUM, group=group)
        return [out, flat, whole]

    same(reduce_scatter, exact=False)
    average = torch.full((10,), float(dist.get_rank()))
    dist.all_reduce(average, ops.AVG, group=groups()[0])
    assert torch.allclose(average, torch.full((10,), (size - 1) / 2))
    strided = torch.arange(12.0).view(3, 4).t()
    dist.all_reduce(strided, group=groups()[0])
    assert torch.equal(strided, torch.arange(12.0).view(3, 4).t() * size)


def moves():
    import torch
    import torch.distributed as dist

    size, rank = dist.get_world_size(), dist.get_rank()

    def gathers(group):
        x = torch.randn(4, 3)
        parts = [torch.empty(4, 3) for _ in range(size)]
        dist.all_gather(parts, x, group=group)
        whole = torch.empty(size * 4, 3)
        dist.all_gather_into_tensor(whole, x, group=group)
        flags = [torch.empty(2, dtype=torch.bool) for _ in range(size)]
        dist.all_gather(flags, torch.rand(2) > 0.5, group=group)
        return [*parts, whole, *flags]

    same(gathers)

    def roots(group):
        x = torch.randn(9)
        dist.broadcast(x, size - 1, group=group)
        mine = torch.randn(3)
        parts = [torch.empty(3) for _ in range(size)] if rank == 1 else None
        dist.gather(mine, parts, dst=1, group=group)
        out = torch.empty(2, 2)
        dist.scatter(out, [torch.randn(2, 2) for _ in range(size)] if rank == 0 else None, src=0, group=group)
        strided = torch.randn(4, 4).t()
        dist.broadcast(strided, 0, group=group)
        return [x, *(parts or []), out, strided]

    same(roots)

    def exchanges(group):
        out = torch.empty(size * 2, 3)
        dist.all_to_all_single(out, torch.randn(size * 2, 3), group=group)
        sends = [(rank + r) % 3 for r in range(size)]
        takes = [(r + rank) % 3 for r in range(size)]
        uneven = torch.empty(sum(takes), 2)
        dist.all_to_all_single(uneven, torch.randn(sum(sends), 2), takes, sends, group=group)
        return [out, uneven]

    same(exchanges)
    outs = [torch.empty(r + 1, dtype=torch.int64) for r in [rank] * size]
    dist.all_to_all(outs, [torch.full((r + 1,), rank * 10 + r) for r in range(size)], group=groups()[0])
    assert all(torch.equal(o, torch.full((rank + 1,), r * 10 + rank)) for r, o in enumerate(outs)), outs


def messages():
    import torch
    import torch.distributed as dist

    size, rank = dist.get_world_size(), dist.get_rank()

    def ring(group):
        """All send before they receive, twice, and with a second tag the other way round."""
        x, y, z = torch.randn(100000), torch.empty(100000), torch.empty(2, 5)
        works = [dist.isend(x, (rank + 1) % size, group=group)]
        works += [dist.isend(torch.full((2, 5), float(rank)), (rank - 1) % size, group=group, tag=7)]
        works += [dist.irecv(z, (rank + 1) % size, group=group, tag=7), dist.irecv(y, (rank - 1) % size, group=group)]
        for work in works:
            work.wait()
        if rank == 0:
            dist.send(torch.arange(3), 1, group=group)
        elif rank == 1:
            got = torch.empty(3, dtype=torch.int64)
            dist.recv(got, 0, group=group)
            return [y, z, got]
        return [y, z]

    same(ring)
    try:
        dist.recv(torch.empty(1), group=groups()[0])
    except NotImplementedError as e:
        assert "recv_anysource" in str(e)
    else:
        raise AssertionError("recv without a source returned")


def objects_and_subgroups():
    import torch
    import torch.distributed as dist

    size, rank = dist.get_world_size(), dist.get_rank()
    ours = groups()[0]
    everyone = [None] * size
    dist.all_gather_object(everyone, {"rank": rank, "text": "x" * rank}, group=ours)
    assert everyone == [{"rank": r, "text": "x" * r} for r in range(size)], everyone
    told = [rank] if rank else ["of rank 0"]
    dist.broadcast_object_list(told, 0, group=ours)
    assert told == ["of rank 0"]
    pair = dist.new_group([0, 1], backend="raylet_c")
    if rank < 2:
        x = torch.tensor([rank + 1.0])
        dist.all_reduce(x, group=pair)
        assert x.item() == 3
        assert dist.get_rank(pair) == rank and dist.get_world_size(pair) == 2 and dist.get_backend(pair) == "raylet_c"
    dist.barrier(group=ours)


def training():
    """DDP and functional collectives, which come in through torch's C++ side."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional
    from torch.nn.parallel import DistributedDataParallel

    def train(group):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        model = DistributedDataParallel(layers, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        torch.manual_seed(dist.get_rank())
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    same(train, exact=False)
    size = dist.get_world_size()
    x = functional.all_reduce(torch.ones(3), "sum", groups()[0])
    assert torch.equal(torch.as_tensor(x) + 0, torch.full((3,), float(size)))
    y = functional.all_gather_tensor(torch.full((2,), float(dist.get_rank())), 0, groups()[0])
    assert (y + 0).tolist() == [float(r) for r in range(size) for _ in range(2)]


def default_group():
    """The backend of the default group, under a mesh and sharded training."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    import raylet_c.train.process_group  # noqa: F401

    def train():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        torch.manual_seed(dist.get_rank())
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.full_tensor() for p in model.parameters()]

    losses, weights = train()
    dist.destroy_process_group()
    dist.init_process_group("raylet_c")
    assert dist.get_backend() == "raylet_c"
    again, ours = train()
    torch.testing.assert_close(torch.tensor(again), torch.tensor(losses))
    for a, b in zip(ours, weights):
        torch.testing.assert_close(a, b)
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, dist.get_rank())
    assert everyone == list(range(dist.get_world_size()))


CASES = {
    reductions: "reductions of all types and operations are gloo's",
    moves: "gathers, broadcasts, scatters and exchanges are gloo's",
    messages: "messages arrive, also when all ranks send before they receive",
    objects_and_subgroups: "objects and subgroups",
    training: "DDP and functional collectives train as over gloo",
    default_group: "the default group may be of this backend, and torch's sharded training runs on it",
}


def case(name):
    globals()[name]()


def main():
    _ranks.run_cases("process_group_test:case", (2, 3), False, {f.__name__: sentence for f, sentence in CASES.items()}, timeout=100)


if __name__ == "__main__":
    main()
