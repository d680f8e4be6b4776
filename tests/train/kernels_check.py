"""Checks every CUDA kernel of train_backend/kernels against the CPU kernels, bit by bit, and measures it.

    bazel/dev.sh build/libtrain_kernels.so
    python3 tests/train/kernels_check.py [--library build/libtrain_kernels.so] [--device cuda|fake|cpu] [--no-bench]

Needs torch with a GPU and an NVRTC (torch's); no compiler. The CPU kernels are held to their slow twins by train_backend/kernels/test.
Without a GPU this script can be tried: --device fake runs the CUDA kernels under the fake driver (build/test/fake, made for the unit
tests), --device cpu the CPU's kernels. Takes less than a minute; prints TAP.
"""
import argparse
import ctypes
import faulthandler
import itertools
import math
import os
import statistics
import sys
import tempfile
import time
import traceback

import torch

U8, F32, F16, BF16, F64 = range(5)
CODES = {torch.uint8: U8, torch.float32: F32, torch.float16: F16, torch.bfloat16: BF16, torch.float64: F64}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
FLOATS = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
INT8, INT4, FP8 = range(3)
SIZES = [1, 3, 8, 31, 1000, 4099, 70001]
COPY = 64 << 20  # elements of the measured calls


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 400)]


class Piece(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("chunk", "full", "count", "total")]


class Adamw(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("param", "grad", "exp_avg", "exp_avg_sq", "cast")]
        + [(name, ctypes.c_int) for name in ("param_type", "grad_type", "state_type", "cast_type")]
        + [("count", ctypes.c_size_t)]
        + [(name, ctypes.c_double) for name in ("lr", "beta1", "beta2", "eps", "weight_decay", "step")]
        + [(name, ctypes.c_void_p) for name in ("step_on_device", "grad_scale", "skip")]
        + [(name, ctypes.c_bool) for name in ("decoupled", "maximize", "follow")]
        + [("roots", ctypes.c_void_p)]
    )


class Sgd(ctypes.Structure):
    _fields_ = (
        [(name, ctypes.c_void_p) for name in ("param", "grad", "momentum_buffer", "cast")]
        + [(name, ctypes.c_int) for name in ("param_type", "grad_type", "state_type", "cast_type")]
        + [("count", ctypes.c_size_t)]
        + [(name, ctypes.c_double) for name in ("lr", "momentum", "dampening", "weight_decay")]
        + [(name, ctypes.c_bool) for name in ("first", "nesterov", "maximize", "follow")]
    )


P, Z, I, F, B = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_float, ctypes.c_bool
SIGNATURES = {
    "rc_kernels_create": [I, P],
    "rc_layout_create": [P, P, Z, I, Z, P],
    "rc_unshuffle": [P, P, P, P, Z, P],
    "rc_pack": [P, P, P, I, P, I, F, P],
    "rc_cast": [P, P, I, P, I, Z, P],
    "rc_accumulate": [P, P, I, P, I, Z, F, P],
    "rc_scale": [P, P, I, Z, F, P],
    "rc_sum_squares": [P, P, I, Z, P, P],
    "rc_clip_coefficient": [P, P, F, P, P, P],
    "rc_adamw_step": [P, P, P],
    "rc_sgd_step": [P, P, P],
    "rc_quantize": [P, I, Z, P, I, Z, P, P, P],
    "rc_dequantize": [P, I, Z, P, P, I, Z, B, F, P],
}


class Kernels:
    """The library's calls for one device; tensors are passed as they are."""

    def __init__(self, library, device):
        self.library, self.device = library, device
        handle = P()
        self.call("rc_kernels_create", -1 if device == "cpu" else 0, ctypes.byref(handle))  # "fake" is device 0 too
        self.handle = handle

    def call(self, name, *arguments):
        function = getattr(self.library, name)
        function.argtypes = SIGNATURES[name] + [P]
        error = Error()
        arguments = [P(a.data_ptr()) if isinstance(a, torch.Tensor) else a for a in arguments]
        if function(*arguments, ctypes.byref(error)):
            raise RuntimeError(error.text.decode())

    def __getattr__(self, name):
        def bound(*arguments):
            stream = P(torch.cuda.current_stream().cuda_stream) if self.device == "cuda" else None
            self.call("rc_" + name, self.handle, *arguments, stream)
        return bound

    def layout(self, pieces, ranks, chunk):
        handle = P()
        array = (Piece * max(1, len(pieces)))(*[Piece(*p) for p in pieces])
        self.call("rc_layout_create", self.handle, array, len(pieces), ranks, chunk, ctypes.byref(handle))
        return handle


def quant_bytes(library, kind, count, block):
    library.rc_quant_bytes.restype = Z
    library.rc_quant_bytes.argtypes = [I, Z, Z]
    return library.rc_quant_bytes(kind, count, block)


def bits(count, dtype, generator):
    """Any bits: NaNs, infinities and subnormals come."""
    size = torch.empty(0, dtype=dtype).element_size()
    return torch.randint(0, 256, (count * size,), dtype=torch.uint8, generator=generator).view(dtype)


def wild(count, dtype, generator, size=1.0):
    x = torch.randn(count, dtype=torch.float64, generator=generator) * size
    for value in (math.inf, -math.inf, math.nan, 0.0, -0.0, 1e-42, 65504.0):
        if count > 100:
            x[torch.randint(0, count, (max(1, count // 400),), generator=generator)] = value
    return x.to(dtype)


def odd(x, offset):
    """The same elements, `offset` elements behind an aligned place."""
    room = torch.zeros(x.numel() + offset, dtype=x.dtype, device=x.device)
    room[offset:] = x
    return room[offset:]


def differing(want, got):
    """How many elements have other bits, two NaNs being equal."""
    want, got = want.cpu(), got.cpu()
    other = want.view(BITS[want.element_size()]) != got.view(BITS[got.element_size()])
    if want.dtype.is_floating_point:
        other &= ~(want.isnan() & got.isnan())
    return int(other.sum()), other


def follows(kind, cast):
    return kind is torch.float32 and cast is not None and cast.dtype in (torch.bfloat16, torch.float16)


def check_same(what, want, got):
    count, other = differing(want, got)
    if count:
        first = int(other.nonzero()[0])
        raise AssertionError("%s: %d of %d elements (%s) differ, first %d: %r, not %r" % (
            what, count, want.numel(), want.dtype, first, got.cpu()[first].item(), want.cpu()[first].item()))


class Check:
    def __init__(self, library, device):
        self.library, self.device = library, device
        self.cpu, self.fast = Kernels(library, "cpu"), Kernels(library, device)
        self.generator = torch.Generator().manual_seed(1)

    def put(self, x, offset=0):
        return odd(x.to("cuda" if self.device == "cuda" else "cpu", copy=True), offset)

    def plan(self, count, ranks):
        """Pieces as Shard(0) deals rows, gaps between some; chunk and full sizes."""
        pieces, chunk, full = [], 0, 0
        number = lambda limit: int(torch.randint(0, limit, (1,), generator=self.generator))
        for i in range(count):
            rows, width = number(9), 1 + number(30 if number(4) else 9000)
            if i == 0:
                rows, width = 64, 1024
            share = -(-rows // ranks) * width
            if number(3) == 0:
                chunk += number(9)
            if number(2) == 0:
                chunk, full = -(-chunk // 8) * 8, -(-full // 8) * 8
            pieces.append((chunk, full, share, rows * width))
            chunk, full = chunk + share, full + share * ranks
        return pieces, chunk + number(20), full

    def test_unshuffle(self):
        for i, (ranks, element) in enumerate(itertools.product((1, 2, 3, 8), (1, 2, 4, 8))):
            pieces, chunk, full = self.plan((1, 5, 40, 300)[i % 4], ranks)
            gathered = torch.randint(0, 256, (ranks * chunk * element,), dtype=torch.uint8, generator=self.generator)
            want = torch.full((full * element,), 0xa5, dtype=torch.uint8)
            offset = (0, 16, 2 * element)[i % 3]
            got, source = self.put(want, offset), self.put(gathered, offset)
            self.cpu.unshuffle(self.cpu.layout(pieces, ranks, chunk), gathered, want, element)
            self.fast.unshuffle(self.fast.layout(pieces, ranks, chunk), source, got, element)
            check_same("unshuffle, %d ranks, %d bytes" % (ranks, element), want, got)

    def test_pack(self):
        for i, (source, target, scale) in enumerate(itertools.product(FLOATS, FLOATS, (1.0, 0.3))):
            ranks = (1, 2, 3, 8)[i % 4]
            pieces, chunk, _ = self.plan((1, 5, 40, 300)[i // 2 % 4], ranks)
            grads = [None if len(pieces) > 1 and j % 7 == 3 else bits(p[3], source, self.generator) for j, p in enumerate(pieces)]
            placed = [None if g is None else self.put(g, j % 3) for j, g in enumerate(grads)]
            addresses = lambda tensors: (P * len(tensors))(*[None if t is None else t.data_ptr() for t in tensors])
            want = bits(ranks * chunk, target, self.generator)
            got = self.put(want, (0, 8, 1)[i % 3])
            codes = CODES[source], CODES[target]
            self.cpu.pack(self.cpu.layout(pieces, ranks, chunk), addresses(grads), codes[0], want, codes[1], scale)
            self.fast.pack(self.fast.layout(pieces, ranks, chunk), addresses(placed), codes[0], got, codes[1], scale)
            check_same("pack %s to %s times %g, %d pieces" % (source, target, scale, len(pieces)), want, got)

    def test_cast(self):
        for source, target, count, offset in itertools.product(FLOATS, FLOATS, SIZES, (0, 1)):
            x = bits(count, source, self.generator)
            want = bits(count, target, self.generator)
            got = self.put(want, offset)
            self.cpu.cast(x, CODES[source], want, CODES[target], count)
            self.fast.cast(self.put(x, offset), CODES[source], got, CODES[target], count)
            check_same("cast of %d" % count, want, got)
            check_same("torch's cast of %d" % count, x.to(target), got)

    def test_accumulate(self):
        for source, target, count, offset in itertools.product(FLOATS, FLOATS, SIZES, (0, 1)):
            x, want = wild(count, source, self.generator), wild(count, target, self.generator)
            got = self.put(want, offset)
            self.cpu.accumulate(want, CODES[target], x, CODES[source], count, -0.3)
            self.fast.accumulate(got, CODES[target], self.put(x, offset), CODES[source], count, -0.3)
            check_same("accumulate", want, got)

    def test_scale(self):
        for kind, count, offset in itertools.product(FLOATS, SIZES, (0, 1)):
            want = wild(count, kind, self.generator)
            got = self.put(want, offset)
            self.cpu.scale(want, CODES[kind], count, 0.7)
            self.fast.scale(got, CODES[kind], count, 0.7)
            check_same("scale", want, got)

    def test_sum_squares(self):
        for kind, count, offset in itertools.product(FLOATS, SIZES + ([5 << 20] if self.device == "cuda" else [100000]), (0, 1)):
            x = torch.randn(count, dtype=torch.float64, generator=self.generator).to(kind)
            placed = self.put(x, offset)
            sums = []
            for _ in range(3):
                out = self.put(torch.full((1,), 0.5))
                self.fast.sum_squares(placed, CODES[kind], count, out)
                sums.append(out.item())
            want = 0.5 + x.double().square().sum().item()
            assert abs(sums[0] - want) <= 2e-6 * want, "%d of %s: %r, not %r" % (count, kind, sums[0], want)
            assert sums[0] == sums[1] == sums[2], "not the same bits each time: %r" % sums
        placed[count // 2] = math.nan
        self.fast.sum_squares(placed, CODES[kind], count, out)
        assert math.isnan(out.item()), "a NaN is lost"
        out.zero_()
        placed = self.put(torch.ones(1 << 14))
        for _ in range(200):  # more than there are places for partial sums
            self.fast.sum_squares(placed, F32, 1 << 14, out)
        assert out.item() == 200 << 14, "200 sums in a row: %r" % out.item()

    def test_clip_coefficient(self):
        grads = torch.randn(12345, generator=self.generator)
        for limit, size in itertools.product((0.5, 1e6), (1.0, 0.0, math.inf, math.nan)):
            placed = torch.nn.Parameter(self.put(grads))
            placed.grad = self.put(grads * size)
            out = [self.put(torch.zeros(1)) for _ in range(3)]
            self.fast.sum_squares(placed.grad, F32, 12345, out[0])
            self.fast.clip_coefficient(out[0], limit, out[1], out[2])
            norm = torch.nn.utils.clip_grad_norm_([placed], limit)
            torch.testing.assert_close(out[2][0], norm, rtol=1e-5, atol=0, equal_nan=True)
            torch.testing.assert_close(out[1][0], (limit / (norm + 1e-6)).clamp(max=1.0), rtol=1e-5, atol=0, equal_nan=True)

    def adamw(self, kernels, tensors, **options):
        param, grad, exp_avg, exp_avg_sq, cast = tensors
        arguments = dict(lr=1e-2, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.1, decoupled=True, count=param.numel())
        arguments.update({k: v.data_ptr() if isinstance(v, torch.Tensor) else v for k, v in options.items()})
        step = Adamw(param=param.data_ptr(), grad=grad.data_ptr(), exp_avg=exp_avg.data_ptr(), exp_avg_sq=exp_avg_sq.data_ptr(),
                     cast=None if cast is None else cast.data_ptr(), param_type=CODES[param.dtype], grad_type=CODES[grad.dtype],
                     state_type=CODES[exp_avg.dtype], cast_type=0 if cast is None else CODES[cast.dtype], **arguments)
        kernels.adamw_step(ctypes.byref(step))

    def test_adamw(self):
        variant = 0
        for kinds in itertools.product(FLOATS, FLOATS, FLOATS):
            count, offset = SIZES[variant % len(SIZES)], variant % 2
            cast = torch.zeros(count, dtype=FLOATS[variant % 4]) if variant % 3 else None
            grads = [wild(count, kinds[1], self.generator) for _ in range(3)]
            want = [wild(count, kinds[0], self.generator), None, *torch.zeros(2, count, dtype=kinds[2]), cast]
            got = [None if x is None else self.put(x, offset) for x in want]
            scalars = {name: torch.tensor([value]) for name, value in (("step_on_device", 0.0), ("grad_scale", 0.37), ("skip", 0.0))}
            placed = {name: self.put(x) for name, x in scalars.items()}
            for step in range(1, 4):
                options = dict(step=step, decoupled=variant % 2 == 0, maximize=variant % 5 == 4, beta1=0.4 if variant % 4 == 3 else 0.9,
                               weight_decay=0.1 if variant % 3 else 0.0, follow=follows(kinds[0], cast))
                for kernels, tensors, numbers in ((self.cpu, want, scalars), (self.fast, got, placed)):
                    tensors[1] = grads[step - 1] if kernels is self.cpu else self.put(grads[step - 1], offset)
                    numbers["step_on_device"].fill_(float(step))
                    numbers["skip"].fill_(float(step == 2))
                    if options["follow"] and step == 3:
                        tensors[4][::7] = 0.5  # somebody has written the parameters that follow
                    chosen = [name for i, name in enumerate(numbers) if variant >> i & 1]
                    self.adamw(kernels, tensors, **options, **{name: numbers[name] for name in chosen})
            for name, x, y in zip(("param", "grad", "exp_avg", "exp_avg_sq", "cast"), want, got):
                if x is not None and kinds[0] is torch.float64 and variant & 1:
                    # The device makes beta^step itself; its last place, not the host's, can be seen in f64.
                    torch.testing.assert_close(y.cpu(), x, rtol=1e-12 if x.dtype is torch.float64 else 1e-2, atol=1e-12, equal_nan=True)
                elif x is not None:
                    check_same("adamw variant %d %s: %s" % (variant, kinds, name), x, y)
            variant += 1

    def test_sgd(self):
        for variant, kinds in enumerate(itertools.product(FLOATS, FLOATS, FLOATS)):
            count, offset = SIZES[variant % len(SIZES)], variant % 2
            momentum = 0.9 if variant % 4 else 0.0
            cast = torch.zeros(count, dtype=FLOATS[variant % 4]) if variant % 3 else None
            want = [wild(count, kinds[0], self.generator), None, torch.zeros(count, dtype=kinds[2]) if momentum else None, cast]
            got = [None if x is None else self.put(x, offset) for x in want]
            for turn in range(3):
                grad = wild(count, kinds[1], self.generator)
                for kernels, tensors in ((self.cpu, want), (self.fast, got)):
                    tensors[1] = grad if kernels is self.cpu else self.put(grad, offset)
                    follow = follows(kinds[0], cast)
                    if follow and turn == 2:
                        tensors[3][::7] = 0.5
                    step = Sgd(*[None if x is None else x.data_ptr() for x in tensors], CODES[kinds[0]], CODES[kinds[1]], CODES[kinds[2]],
                               0 if cast is None else CODES[cast.dtype], count, 1e-2, momentum, 0.0 if variant % 2 else 0.1,
                               0.1 if variant % 3 else 0.0, turn == 0, bool(momentum) and variant % 2 == 1, variant % 5 == 4, follow)
                    kernels.sgd_step(ctypes.byref(step))
            for name, x, y in zip(("param", "grad", "momentum_buffer", "cast"), want, got):
                if x is not None:
                    check_same("sgd variant %d %s: %s" % (variant, kinds, name), x, y)

    def test_adamw_is_torchs(self):
        optimizers = (torch.optim.AdamW, True), (torch.optim.Adam, False)
        for kind, (optimizer, decoupled) in itertools.product((torch.float32, torch.bfloat16), optimizers):
            param = torch.nn.Parameter(self.put(torch.randn(4096, generator=self.generator).to(kind)))
            ours = [param.detach().clone(), None, torch.zeros_like(param), torch.zeros_like(param), None]
            stock = optimizer([param], lr=1e-2, weight_decay=0.1, fused=True)
            for step in range(1, 11):
                ours[1] = self.put(torch.randn(4096, generator=self.generator).to(kind))
                param.grad = ours[1].clone()
                stock.step()
                self.adamw(self.fast, ours, step=step, decoupled=decoupled)
            state = stock.state[param]
            for name, want, got in (("param", param.detach(), ours[0]), ("exp_avg", state["exp_avg"], ours[2]),
                                    ("exp_avg_sq", state["exp_avg_sq"], ours[3])):
                print("# %s %s, 10 steps, %s: %d of 4096 elements have other bits than torch's fused step, by %.3g at most" % (
                    optimizer.__name__, kind, name, differing(want, got)[0], (want.double() - got.double()).abs().max().item()))
                if self.device != "cuda" and tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13):
                    check_same("%s %s" % (optimizer.__name__, name), want, got)
                tolerance = 1e-6 if kind is torch.float32 else 1e-2
                torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)

    def test_quantise(self):
        for kind, block, dtype, count in itertools.product((INT8, INT4, FP8), (32, 96, 256, 2048), FLOATS, (1, 33, 4099, 70001)):
            for feedback, add, offset in ((False, False, 0), (True, True, 0), (True, True, 1)):
                x = torch.randn(count, dtype=torch.float64, generator=self.generator).to(dtype)
                if block == 96:
                    x = wild(count, dtype, self.generator)
                lost = torch.randn(count, generator=self.generator) * 0.01 if feedback else None
                residual = self.put(lost, offset) if feedback else None
                size = quant_bytes(self.library, kind, count, block)
                want = torch.full((size,), 0xa5, dtype=torch.uint8)
                got = self.put(want)
                self.cpu.quantize(kind, block, x, CODES[dtype], count, lost, want)
                self.fast.quantize(kind, block, self.put(x, offset), CODES[dtype], count, residual, got)
                blocks = -(-count // block)
                check_same("scales", want[:4 * blocks].view(torch.float32), got[:4 * blocks].view(torch.float32))
                start = -(-4 * blocks // 16) * 16
                check_same("codes of kind %d, block %d, %s" % (kind, block, dtype), want[start:], got[start:])
                if feedback:
                    check_same("what was lost", lost, residual)
                back = wild(count, dtype, self.generator)
                placed = self.put(back, offset)
                self.cpu.dequantize(kind, block, want, back, CODES[dtype], count, add, 0.5)
                self.fast.dequantize(kind, block, got, placed, CODES[dtype], count, add, 0.5)
                check_same("dequantised from kind %d, block %d, %s" % (kind, block, dtype), back, placed)

    def test_graph(self):
        """A captured step counts on from the step on the device, and skips nothing."""
        if self.device != "cuda":
            print("# skip: no graphs on the CPU")
            return
        count = 70001
        want = [torch.randn(count, generator=self.generator), torch.randn(count, generator=self.generator), torch.zeros(count),
                torch.zeros(count), torch.zeros(count, dtype=torch.bfloat16)]
        got = [self.put(x) for x in want]
        step, total, coefficient = (self.put(torch.zeros(1)) for _ in range(3))
        pieces = [(0, 0, 100, 200)]
        layout, packed = self.fast.layout(pieces, 2, 100), self.put(torch.zeros(200))
        grads = (P * 1)(got[1].data_ptr())
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step.add_(1)
            total.zero_()
            self.fast.pack(layout, grads, F32, packed, F32, 0.5)
            self.fast.sum_squares(got[1], F32, count, total)
            self.fast.clip_coefficient(total, 1.0, coefficient, None)
            self.adamw(self.fast, got, step_on_device=step, grad_scale=coefficient)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        check_same("packed", want[1][:200] * 0.5, packed)
        for number in range(1, 6):
            self.adamw(self.cpu, want, step=number, grad_scale=coefficient.cpu())
        for name, x, y in zip(("param", "grad", "exp_avg", "exp_avg_sq", "cast"), want, got):
            check_same("graph: " + name, x, y)

    def test_streams(self):
        """Sums on two streams at a time do not mix."""
        if self.device != "cuda":
            print("# skip: no streams on the CPU")
            return
        x = self.put(torch.ones(1 << 22))
        outs = [self.put(torch.zeros(1)) for _ in range(2)]
        streams = [torch.cuda.Stream() for _ in range(2)]
        torch.cuda.synchronize()
        for _ in range(20):
            for out, stream in zip(outs, streams):
                with torch.cuda.stream(stream):
                    self.fast.sum_squares(x, F32, 1 << 22, out)
        torch.cuda.synchronize()
        assert [out.item() for out in outs] == [20 << 22] * 2, outs


def milliseconds(work):
    """Of the device, for one call: the median of five rounds of four. The host is ahead of the device, so its time does not count."""
    for _ in range(3):
        work()
    times = []
    for _ in range(5):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(1 << 20)
        begin.record()
        for _ in range(4):
            work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 4)
    return statistics.median(times)


def bench(check):
    n, kernels, library = COPY, check.fast, check.library
    f32 = [torch.randn(n, device="cuda") for _ in range(4)]
    b16 = [torch.randn(n, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    plain = 8 * n / milliseconds(lambda: f32[1].copy_(f32[0])) / 1e6
    print("# %s, torch %s, %d Mi elements; a plain f32 copy: %.0f GB/s" % (torch.cuda.get_device_name(), torch.__version__, n >> 20, plain))

    def row(name, bytes_an_element, work):
        try:
            took = milliseconds(work)
            speed = bytes_an_element * n / took / 1e6
            print("# %-44s %8.3f ms %7.0f GB/s  %3.0f %% of the copy" % (name, took, speed, 100 * speed / plain))
        except Exception as error:  # the other rows are still of worth
            print("# %-44s failed: %s" % (name, error))

    # A layer of 12 parameters on two ranks, its rows even and aligned, and one with odd sizes.
    for name, shares in (("aligned", [n // 24] * 12), ("odd", [n // 24 - 2 * i - 1 for i in range(12)])):
        pieces, chunk, full = [], 0, 0
        for share in shares:
            pieces.append((chunk, full, share, 2 * share))
            chunk, full = chunk + share, full + 2 * share
        used = full / n
        layout = kernels.layout(pieces, 2, chunk)
        row("unshuffle bf16, " + name, 4 * used, lambda: kernels.unshuffle(layout, b16[0], b16[1], 2))
        row("unshuffle f32, " + name, 8 * used, lambda: kernels.unshuffle(layout, f32[0], f32[1], 4))
        for source, target, label, size in ((b16, b16, "bf16 to bf16", 4), (b16, f32, "bf16 to f32", 6), (f32, f32, "f32 to f32", 8)):
            start = [source[0].data_ptr() + p[1] * source[0].element_size() for p in pieces]
            grads = (P * len(start))(*start)
            codes = CODES[source[0].dtype], CODES[target[0].dtype]
            for scale in (1.0, 0.5):
                row("pack %s, times %g, %s" % (label, scale, name), size * used,
                    lambda: kernels.pack(layout, grads, codes[0], target[1], codes[1], scale))
    row("cast f32 to bf16", 6, lambda: kernels.cast(f32[0], F32, b16[0], BF16, n))
    row("torch: copy_ f32 to bf16", 6, lambda: b16[0].copy_(f32[0]))
    row("cast bf16 to f32", 6, lambda: kernels.cast(b16[0], BF16, f32[0], F32, n))
    row("cast f32 to f16", 6, lambda: kernels.cast(f32[0], F32, b16[1], F16, n))
    b16[1].normal_()
    row("accumulate f32 += f32", 12, lambda: kernels.accumulate(f32[0], F32, f32[1], F32, n, 1.0))
    row("accumulate f32 += bf16", 10, lambda: kernels.accumulate(f32[0], F32, b16[1], BF16, n, 1.0))
    row("scale f32", 8, lambda: kernels.scale(f32[0], F32, n, 0.999))
    row("scale bf16", 4, lambda: kernels.scale(b16[0], BF16, n, 0.999))
    out = torch.zeros(1, device="cuda")
    row("sum of squares f32", 4, lambda: kernels.sum_squares(f32[1], F32, n, out))
    row("sum of squares bf16", 2, lambda: kernels.sum_squares(b16[1], BF16, n, out))
    row("torch: _foreach_norm f32", 4, lambda: torch._foreach_norm([f32[1]]))
    for tensors, cast, label, size in ((f32, None, "f32", 28), (f32, b16[0], "f32 with bf16 cast", 30), (b16, None, "bf16", 14)):
        for i, x in enumerate(tensors):
            x.normal_() if i < 2 else x.zero_()
        step = [0]

        def one():
            step[0] += 1
            check.adamw(kernels, [tensors[0], tensors[1], tensors[2], tensors[3], cast], step=step[0])
        row("adamw " + label, size, one)
    param = torch.nn.Parameter(f32[0])
    param.grad = f32[1]
    stock = torch.optim.AdamW([param], lr=1e-2, weight_decay=0.1, fused=True)
    row("torch: AdamW(fused=True) f32", 28, stock.step)
    del stock, param
    f32[0].normal_()
    for kind, label, bytes_each in ((INT8, "int8", 1), (INT4, "int4", 0.5), (FP8, "fp8", 1)):
        packed = torch.zeros(quant_bytes(library, kind, n, 256), dtype=torch.uint8, device="cuda")
        row("quantize f32 to %s, blocks of 256" % label, 4 + bytes_each, lambda: kernels.quantize(kind, 256, f32[0], F32, n, None, packed))
        row("quantize bf16 to %s with residual" % label, 10 + bytes_each,
            lambda: kernels.quantize(kind, 256, b16[1], BF16, n, f32[2], packed))
        row("dequantize %s, f32 +=" % label, 8 + bytes_each, lambda: kernels.dequantize(kind, 256, packed, f32[3], F32, n, True, 1.0))
        row("dequantize %s to bf16" % label, 2 + bytes_each, lambda: kernels.dequantize(kind, 256, packed, b16[0], BF16, n, False, 1.0))
    # Host time of a call, ctypes included; the last one is ctypes alone.
    stream = P(torch.cuda.current_stream().cuda_stream)
    small = [P(f32[0].data_ptr()), P(b16[0].data_ptr())]
    start = (P * 12)(*[f32[1].data_ptr()] * 12)
    tiny = kernels.layout([(8 * i, 16 * i, 8, 16) for i in range(12)], 2, 96)
    library.rc_quant_bytes(0, 1, 32)
    for name, work in (("cast", lambda: library.rc_cast(kernels.handle, small[0], F32, small[1], BF16, 64, stream, None)),
                       ("pack", lambda: library.rc_pack(kernels.handle, tiny, start, F32, small[0], F32, 0.5, stream, None)),
                       ("no launch", lambda: library.rc_cast(kernels.handle, small[0], F32, small[1], BF16, 0, stream, None))):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(500):
            work()
        print("# host time of a call, %s: %.2f us" % (name, (time.perf_counter() - begin) / 500 * 1e6))
        torch.cuda.synchronize()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--library", default=os.path.join(root, "build", "libtrain_kernels.so"))
    parser.add_argument("--device", default="cuda", choices=("cuda", "fake", "cpu"))
    parser.add_argument("--no-bench", action="store_true")
    parser.add_argument("--only", default="", help="only tests with this in their name")
    options = parser.parse_args()
    faulthandler.enable()
    sys.stdout.reconfigure(line_buffering=True)
    begin = time.perf_counter()
    library = ctypes.CDLL(os.path.abspath(options.library))
    if options.device == "cuda":
        if not torch.cuda.is_available():
            raise SystemExit("kernels_check: torch %s sees no GPU" % torch.__version__)
        torch.zeros(1, device="cuda")
        with tempfile.TemporaryDirectory() as folder:  # compiled once, then taken from the cache
            kept = os.environ.get("XDG_CACHE_HOME")
            os.environ["XDG_CACHE_HOME"] = folder
            for what in ("compiled", "from the cache"):
                start = time.perf_counter()
                Kernels(library, "cuda")
                print("# kernels %s in %.2f s" % (what, time.perf_counter() - start))
            check = Check(library, "cuda")
            print("# cache: %s" % ", ".join(os.listdir(os.path.join(folder, "raylet-c"))))
            os.environ.pop("XDG_CACHE_HOME") if kept is None else os.environ.update(XDG_CACHE_HOME=kept)
    else:
        if options.device == "fake":
            fake = os.path.join(os.path.dirname(os.path.abspath(options.library)), "test", "fake", "libcuda.so.1")
            ctypes.CDLL(fake, mode=ctypes.RTLD_GLOBAL)  # is libcuda.so.1 from here on
            os.environ.update(RAYLET_C_NVRTC=fake, XDG_CACHE_HOME="/proc/nothing")
        check = Check(library, options.device)
    names = [name for name in dir(check) if name.startswith("test_") and options.only in name]
    failed = 0
    for number, name in enumerate(names, 1):
        start = time.perf_counter()
        try:
            getattr(check, name)()
            if options.device == "cuda":
                torch.cuda.synchronize()
            outcome = "ok"
        except Exception as error:
            failed += 1
            outcome = "not ok"
            print("# %s" % "\n# ".join(traceback.format_exception_only(type(error), error)[-1].splitlines()))
        print("%s %d - %s (%.1f s)" % (outcome, number, name[5:], time.perf_counter() - start))
    print("1..%d" % len(names))
    if options.device == "cuda" and not options.no_bench:
        bench(check)
    print("# %.1f s in all" % (time.perf_counter() - begin))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
