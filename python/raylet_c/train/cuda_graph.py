"""A whole training step as one CUDA graph, collectives included.

    step = raylet_c.train.graph(step)       # step(*tensors) -> tensors: forward, backward, optimizer.step(), zero_grad()
    for batch in loader:
        loss = step(batch)

The first calls run as they are, which also shows what the step uses; then one call is captured and later ones are replays: one launch,
no work on the host. Tensors in the arguments are copied to the captured ones. What comes back is overwritten by the next call:
`.clone()` what is to be kept. Optimizers that the step calls are made capturable, with a tensor as learning rate, so that schedulers keep working.

Where a step cannot be captured (no GPU, an operation that waits for the device, a parameter group changed) or its arguments change in
shape or type, calls run as without a graph, with one line in the log.
"""
import functools
import logging

import torch

from . import model as _model
from .values import map_tensors, tensors_in

log = logging.getLogger("raylet_c.train")
WARM_UP = 3


class _Step:
    def __init__(self, step):
        self.step = step
        self.calls = 0
        self.reason = None if torch.cuda.is_available() else "there is no GPU"
        self.graph = None
        self.optimizers = []
        self.models = set()
        self.stream = None
        functools.update_wrapper(self, step, updated=())

    def __call__(self, *args, **kwargs):
        if self.reason is not None:
            return self.step(*args, **kwargs)
        signature = _signature((args, kwargs))
        if self.calls < WARM_UP:
            self.calls += 1
            return self._warm_up(args, kwargs)
        if self.graph is None:
            self._capture(args, kwargs, signature)
            if self.graph is None:
                return self.step(*args, **kwargs)
        if signature != self.signature:
            self._fall_back("its arguments are %s now, not %s" % (signature[1], self.signature[1]))
            return self.step(*args, **kwargs)
        for ours, theirs in zip(self.tensors, tensors_in((args, kwargs))):
            if ours is not theirs:
                ours.copy_(theirs, non_blocking=True)
        stream = torch.cuda.current_stream().cuda_stream
        for comm in self.comms:
            comm.check()
        self.graph.replay()
        for comm in self.comms:
            comm.watch(stream, None, "graph")
        return self.output

    def _warm_up(self, args, kwargs):
        from torch.optim.optimizer import register_optimizer_step_post_hook

        def seen(optimizer, *_):
            if optimizer not in self.optimizers:
                self.optimizers.append(optimizer)

        _model.watchers.append(self.models.add)
        hook = register_optimizer_step_post_hook(seen)
        try:
            # Not on the default stream, as in the capture; one for all, since the allocator keeps each stream's memory apart.
            self.stream = stream = self.stream or torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                output = self.step(*args, **kwargs)
            torch.cuda.current_stream().wait_stream(stream)
            for optimizer in self.optimizers:  # now, so that what is set up for it is set up before the capture
                _make_capturable(optimizer)
            return output
        finally:
            hook.remove()
            _model.watchers.remove(self.models.add)

    def _capture(self, args, kwargs, signature):
        try:
            self.args, self.kwargs = map_tensors(lambda t: t.clone(), (args, kwargs))
            self.tensors = list(tensors_in((self.args, self.kwargs)))
            self.signature = signature
            torch.cuda.synchronize()
            for m in self.models:
                m.free_gradients()  # or it would stay beside the graph's own
                m.engine.forget_events()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                self.output = self.step(*self.args, **self.kwargs)
            self.graph = graph
            self.comms = [c for m in self.models for c in m.comms if c is not None]
        except Exception as error:  # whatever an operation raises when it is captured
            torch.cuda.synchronize()
            for m in self.models:
                m.reset()
            self._fall_back("it cannot be captured: %s" % str(error).strip().splitlines()[0])
        finally:
            for m in self.models:
                m.engine.forget_events()

    def _fall_back(self, reason):
        self.reason = reason
        self.graph = self.output = None
        for m in self.models:
            m.engine.forget_events()
        log.warning("the step runs without a CUDA graph: %s", reason)


def graph(step):
    return _Step(step)


def _make_capturable(optimizer):
    for group in optimizer.param_groups:
        if "capturable" not in group:
            continue
        group["capturable"] = True
        if not isinstance(group["lr"], torch.Tensor):
            group["lr"] = torch.tensor(float(group["lr"]), device=torch.device("cuda", torch.cuda.current_device()))
        for p in group["params"]:
            state = optimizer.state.get(p, {})
            if isinstance(state.get("step"), torch.Tensor) and not state["step"].is_cuda:
                state["step"] = state["step"].to(p.device)


def _signature(value):
    """(everything that is not a tensor, and each tensor's shape and type): equal for calls that one graph serves."""
    rest = repr(map_tensors(lambda t: ..., value)) if not isinstance(value, torch.Tensor) else ""
    return rest, [(tuple(t.shape), str(t.dtype)) for t in tensors_in(value)]
