"""The arithmetic of Adam, AdamW and SGD by the engine's kernels: one pass over parameters, gradients and states.

torch's step hands lists of tensors to a function of its module (`torch.optim.adam.adam`, ...), which is looked up there at each call. Ours
stands in its place and takes the lists that optim.py has marked as ours; all others, and what is not served, go on to torch's.

It is taken for f32; in 16 bits torch's fused step is as fast, and its default one rounds between operations. On the CPU only where its bits
are torch's: each kind of step is tried once on some numbers, beside torch's function. On CUDA it stands for the default mode, whose bits
differ by rounding (torch's own modes differ among each other there, too).
"""
import ctypes
import functools
import importlib
import itertools
import logging
import os
import threading

import torch

from raylet_c import _train

log = logging.getLogger("raylet_c.train")

HALVES = (torch.bfloat16, torch.float16)
TRIAL = 2064  # elements: no tail, which torch's fused step rounds otherwise
PLACES = (("torch.optim.adam", "adam"), ("torch.optim.adamw", "adamw"), ("torch.optim.sgd", "sgd"))
_stock = {}  # (module, name) -> torch's own
_marked = threading.local()  # .params: the list that is ours, .masters: its f32 masters or None
_tried = {}  # kind of step -> whether its bits are torch's


def mark(params, masters=None):
    """The step that comes with this very list is ours to do. masters: f32 tensors that are stepped, which params follow."""
    _marked.params, _marked.masters = params, masters


def unserved(options):
    """Why options of a parameter group are left to torch's function; None when they are served."""
    for name in ("amsgrad", "capturable", "differentiable", "has_complex", "has_sparse_grad"):
        if options.get(name):
            return name
    tensors = [k for k, v in options.items() if isinstance(v, torch.Tensor) and k not in ("grad_scale", "found_inf")]
    return "%s as a tensor" % tensors[0] if tensors else None


@functools.lru_cache(None)
def _kernels(device):
    return _train.Kernels(device)


@functools.lru_cache(None)
def _roots():
    """MKL's square roots, which torch's default step takes on the CPU, and what limits their threads. (0, 0): torch has none."""
    try:
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"), os.RTLD_NOW | os.RTLD_NOLOAD)
        return tuple(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("vmsSqrt", "MKL_Set_Num_Threads_Local"))
    except (OSError, AttributeError):
        return 0, 0


def _place(device):
    """(kernels, stream) of a device."""
    if device.type == "cpu":
        return _kernels(-1), 0
    return _kernels(device.index), torch.cuda.current_stream(device).cuda_stream


def _adam(params, grads, exp_avgs, exp_avg_sqs, steps, masters, o):
    torch._foreach_add_(steps, 1)
    kernels, stream = _place(params[0].device)
    first = params[0]
    roots = _roots() if first.dtype is torch.float32 and first.device.type == "cpu" and not o["fused"] else (0, 0)
    written = masters or params
    rows = [(w.data_ptr(), g.data_ptr(), m.data_ptr(), v.data_ptr(), p.data_ptr() if masters else 0, p.numel(), s.item())
            for w, g, m, v, p, s in zip(written, grads, exp_avgs, exp_avg_sqs, params, steps)]
    types = str(written[0].dtype), str(grads[0].dtype), str(exp_avgs[0].dtype), str(first.dtype) if masters else ""
    kernels.adamw(rows, *types, o["lr"], o["beta1"], o["beta2"], o["eps"], o["weight_decay"], o["decoupled_weight_decay"], o["maximize"],
                  roots, torch.get_num_threads(), stream)


def _sgd(params, grads, buffers, masters, o):
    kernels, stream = _place(params[0].device)
    written = masters or params
    new = [False] * len(params)
    if o["momentum"] != 0:
        new = [b is None for b in buffers]
        buffers[:] = [torch.empty_like(w) if b is None else b for b, w in zip(buffers, written)]
    addresses = [b.data_ptr() for b in buffers] if o["momentum"] != 0 else [0] * len(params)
    rows = [(w.data_ptr(), g.data_ptr(), b, p.data_ptr() if masters else 0, p.numel(), n)
            for w, g, b, p, n in zip(written, grads, addresses, params, new)]
    types = str(written[0].dtype), str(grads[0].dtype), str(written[0].dtype), str(params[0].dtype) if masters else ""
    kernels.sgd(rows, *types, o["lr"], o["momentum"], o["dampening"], o["weight_decay"], o["nesterov"], o["maximize"],
                torch.get_num_threads(), stream)


def _run(lists, masters, o):
    """lists: as torch's function has them."""
    if o["sgd"]:
        _sgd(*lists, masters, o)
    else:
        params, grads, exp_avgs, exp_avg_sqs, _, steps = lists
        _adam(params, grads, exp_avgs, exp_avg_sqs, steps, masters, o)


def _same_bits(stock, params, options, o):
    """Whether this kind of step gives torch's bits here: tried on the CPU, once."""
    numbers = sorted((k, bool(v)) for k, v in o.items() if isinstance(v, (bool, int, float)))
    key = (stock, params[0].dtype, *numbers)
    if key not in _tried:
        generator = torch.Generator().manual_seed(1)
        lists = []
        for _ in range(2):
            generator.manual_seed(1)
            values = [torch.randn(TRIAL, generator=generator).to(params[0].dtype) for _ in range(2)]
            zeros = [torch.zeros_like(values[0]) for _ in range(2)]
            lists.append([[values[0]], [values[1]], [None if o["momentum"] else zeros[0]]] if o["sgd"] else
                         [[values[0]], [values[1]], [zeros[0]], [zeros[1]], [], [torch.tensor(0.0)]])
        for _ in range(3):
            stock(*lists[0], **options)
            _run(lists[1], None, o)
        pairs = zip(*(itertools.chain.from_iterable(part) for part in lists))
        _tried[key] = all(torch.equal(a, b) for a, b in pairs if a is not None)
        if not _tried[key]:
            log.debug("%s of %s: torch's own step stays, its bits are others than ours", stock.__name__, params[0].dtype)
    return _tried[key]


def _unmixed(tensors, device, dtype):
    return all(t.device == device and t.dtype is dtype and t.is_contiguous() for t in tensors)


def _serves(stock, lists, options, o):
    """Whether our step gives what torch's function would give for the lists; without masters."""
    params, grads = lists[:2]
    first = params[0]
    if first.dtype is not torch.float32:
        return False
    if options.get("grad_scale") is not None or options.get("found_inf") is not None or options.get("foreach") or unserved(options):
        return False
    states = lists[2:3] if o["sgd"] else lists[2:4]
    if not _unmixed((t for part in (params, grads, *states) for t in part if t is not None), first.device, first.dtype):
        return False
    if first.device.type == "cpu":
        return _same_bits(stock, params, options, o)
    return first.device.type == "cuda" and options.get("fused") is None and options.get("foreach") is None


def _unscaled(grads, options):
    """The gradients for masters, without a GradScaler's factor; None when the step is left out for infinities."""
    scale, found = options.get("grad_scale"), options.get("found_inf")
    if found is not None and found.item():
        return None
    return grads if scale is None else [g.float() / scale for g in grads]


def _step(stock, decoupled, *lists, **options):
    """In place of torch's function."""
    if torch.compiler.is_compiling() or getattr(_marked, "params", None) is not lists[0]:
        return stock(*lists, **options)
    masters = _marked.masters
    mark(None)
    o = dict(options, sgd=stock.__name__ == "sgd", decoupled_weight_decay=options.get("decoupled_weight_decay", decoupled),
             momentum=options.get("momentum", 0), fused=bool(options.get("fused")))
    if not lists[0]:
        return None
    if masters:
        grads = _unscaled(lists[1], options)
        if grads is not None:
            _run((lists[0], grads) + lists[2:], masters, o)
    elif _serves(stock, lists, options, o):
        _run(lists, None, o)
    else:
        return stock(*lists, **options)
    for written in itertools.chain(lists[0], masters or ()):  # as an operation in place would have it
        torch.autograd.graph.increment_version(written)


def install():
    for module, name in PLACES:
        module = importlib.import_module(module)
        _stock[module, name] = stock = getattr(module, name)
        setattr(module, name, functools.wraps(stock)(functools.partial(_step, stock, name == "adamw")))


def uninstall():
    for (module, name), stock in _stock.items():
        setattr(module, name, stock)
    _stock.clear()
