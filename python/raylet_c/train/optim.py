"""torch.optim.Adam, AdamW and SGD over flat shards, and gradient clipping over flat gradients.

torch's step hands lists of tensors to its functional implementation; `_init_group` fills the lists. Here it fills them with a few long plain
tensors instead of hundreds of DTensors: one per run, which is what lies side by side in a unit, in parameters, gradients and states alike,
and has the same options and number of steps. Everything else in torch's step, and with it every number, stays as it is.

`optimizer.state` holds DTensors as torch would make them; they are views into the runs' states. What somebody puts there instead (loading a
state dict, moving states to another device) is noticed by identity and taken over at the next step. A group that is unusual in a step
(a parameter that is not ours, moved, or without its gradient) is torch's own in that step. The arithmetic is in own_step.py.

Masters (`install(master="float32")`): a parameter in 16 bits has a state "master" in f32, which is what is stepped, with other states in f32;
the parameter is the master, rounded. What is written to a parameter by hand or by a load goes into its master at the next step.
"""
import functools
import inspect
import itertools
import logging
import operator
import sys
import weakref
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple

import torch
import torch.distributed as dist

from . import fsdp1, fsdp2, own_step
from .model import own_storage
from .torch_names import DTensor, Replicate

log = logging.getLogger("raylet_c.train")

_stock: Dict[Any, Any] = {}  # class or function name -> torch's own
masters = False  # whether parameters in 16 bits get masters
_told = set()  # why some get none

LISTS = {"params_with_grad": "param", "params": "param", "grads": "grad", "d_p_list": "grad", "exp_avgs": "exp_avg",
         "exp_avg_sqs": "exp_avg_sq", "max_exp_avg_sqs": "max_exp_avg_sq", "state_steps": "step", "momentum_buffer_list": "momentum_buffer"}


def _keys(optimizer, group, mastered=False) -> Tuple[str, ...]:
    """The states of one value per element that the group's step uses."""
    keys = ("master",) if mastered else ()
    if isinstance(optimizer, torch.optim.SGD):
        return keys + (("momentum_buffer",) if group["momentum"] != 0 else ())
    return keys + ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())


def _mastered(group) -> bool:
    """Whether the group's parameters have masters; where they could and do not, one line tells why."""
    params = group["params"]
    if not masters or not any(p.dtype in own_step.HALVES for p in params):
        return False
    reason = own_step.unserved({k: v for k, v in group.items() if k != "params"})
    if group.get("dampening"):
        reason = "dampening"
    if reason is None and len({p.dtype for p in params}) > 1:
        reason = "a group with parameters of several types"
    if reason is None and not _all_ours(params):
        reason = "a group with parameters that are not raylet_c's"
    if reason is not None and reason not in _told:
        _told.add(reason)
        log.warning("parameters stay without float32 masters: %s is not served with them", reason)
    return reason is None


def _all_ours(params) -> bool:
    ours = fsdp2.homes().keys() | fsdp1.parameters()
    return all(id(p) in ours for p in params)


def _local(tensor):
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _like(param, local):
    """A state of the parameter's kind, in the type of local."""
    if not isinstance(param, DTensor):
        return local
    return DTensor.from_local(local, param.device_mesh, param.placements, run_check=False, shape=param.shape, stride=param.stride())


@dataclass(eq=False)
class Entry:
    """One trained parameter of a group."""

    home: Any  # fsdp2.Home
    address: int  # of its local shard; 0 where this rank has no part of it
    states: Dict[str, weakref.ref] = field(default_factory=dict)  # what optimizer.state should hold


@dataclass(eq=False)
class Run:
    """Neighbours: pieces [first, last] of a unit."""

    unit: Any
    first: int
    last: int
    entries: List[Entry]
    param: torch.Tensor
    at: int = 0  # of its first parameter in Plan.steps
    states: Dict[str, Any] = field(default_factory=dict)  # give the flat ones; what is in optimizer.state keeps them alive

    def gradient(self) -> torch.Tensor:
        """Made anew for each step: whoever keeps a view of a gradient keeps its memory from being used again."""
        unit = self.unit
        return unit.grad[unit.grad_offsets[self.first] : unit.grad_offsets[self.last] + unit.spec.pieces[self.last].count]

    def state(self, key: str) -> Optional[torch.Tensor]:
        ref = self.states.get(key)
        return ref() if ref else None

    def part(self, flat: torch.Tensor, entry: Entry) -> torch.Tensor:
        start = self.unit.offsets[entry.home.piece] - self.unit.offsets[self.first]
        size = entry.home.param.sharded_size
        return flat[start : start + size.numel()].view(size)

    def spread(self, optimizer, key: str, flat: torch.Tensor) -> None:
        """optimizer.state shows what is in flat from now on."""
        held = any(entry.home.param.sharded_size.numel() for entry in self.entries)
        self.states[key] = weakref.ref(flat) if held else lambda: flat  # where this rank has no rows of any, all of flat is padding
        for entry in self.entries:
            state = optimizer.state[entry.home.param.sharded_param]
            param, part = entry.home.param, own_storage(self.part(flat, entry))
            state[key] = param.to_sharded_dtensor(part) if flat.dtype == self.param.dtype else _like(param.sharded_param, part)
            entry.states[key] = weakref.ref(state[key])


@dataclass(eq=False)
class Plan:
    keys: Tuple[str, ...]
    mastered: bool
    params: List[torch.Tensor]
    entries: List[Optional[Entry]]  # by parameter; None: frozen
    runs: List[Run]
    steps: Optional[torch.Tensor]  # one value per trained parameter, those of optimizer.state are views of it
    firsts: Optional[torch.Tensor]  # where in steps those of the runs' first parameters are
    seen: Optional[torch.Tensor] = None  # steps after our last one (CPU); a load in place may have changed them


def _fits(value, param, mastered) -> bool:
    return (isinstance(value, DTensor) and (mastered or value.dtype == param.dtype) and value.placements == param.placements and
            value._local_tensor.shape == param._local_tensor.shape and value._local_tensor.device == param._local_tensor.device)


def _all_same(some, others) -> bool:
    return all(map(operator.is_, some, others))


def _holds(plan: Plan, optimizer, group, mastered) -> bool:
    params = group["params"]
    if len(params) != len(plan.params) or plan.keys != _keys(optimizer, group, mastered) or not _all_same(params, plan.params):
        return False
    if plan.seen is not None and not torch.equal(plan.seen, plan.steps):
        return False
    own = [e and e.home.unit.grads[e.home.piece] for e in plan.entries]
    if not _all_same(map(operator.attrgetter("grad"), params), own):
        return False
    if any(e and (g is None or (e.address and p._local_tensor.data_ptr() != e.address)) for p, e, g in zip(params, plan.entries, own)):
        return False
    if not _same_states(optimizer):
        if not all(e is None or _shows(optimizer, p, e) for p, e in zip(params, plan.entries)):
            return False
        _remember_states(optimizer)
    return True


def _same_states(optimizer) -> bool:
    """Whether optimizer.state holds what it held when it was looked through last: all groups at once, no look-up for each parameter."""
    now = list(itertools.chain.from_iterable(map(dict.values, optimizer.state.values())))
    seen = optimizer.__dict__.get("_rc_seen")
    return seen is not None and len(seen) == len(now) and _all_same([ref() for ref in seen], now)


def _remember_states(optimizer) -> None:
    values = list(itertools.chain.from_iterable(map(dict.values, optimizer.state.values())))
    optimizer._rc_seen = list(map(weakref.ref, values)) if all(isinstance(v, torch.Tensor) for v in values) else None


def _shows(optimizer, param, entry) -> bool:
    """Whether optimizer.state has for the parameter what the run has put there."""
    state = optimizer.state[param] if entry.states else {}
    return all(ref() is not None and state.get(key) is ref() for key, ref in entry.states.items())


def _entries(group) -> Optional[List[Optional[Entry]]]:
    """By parameter. None when the group is torch's own in this step."""
    if group.get("differentiable"):
        return None
    homes = fsdp2.homes()
    entries: List[Optional[Entry]] = []
    for param in group["params"]:
        home = homes.get(id(param))
        if home is None:
            return None
        if param.grad is None:
            if param.requires_grad:
                return None
            entries.append(None)
            continue
        address = param._local_tensor.data_ptr() if param._local_tensor.numel() else 0
        moved = address and address != home.root.model.piece_of(home.unit, home.piece).data_ptr()
        if moved or param.grad is not home.unit.grads[home.piece]:
            return None
        entries.append(Entry(home, address))
    return entries if any(entries) else None


def _arguments(optimizer, lists):
    """torch's lists by the name of what they hold."""
    names = list(inspect.signature(_stock[_base(optimizer)]).parameters)[2:]
    return {LISTS[name]: value for name, value in zip(names, lists) if name in LISTS}


def _base(optimizer):
    return next(cls for cls in type(optimizer).__mro__ if cls in _stock)


def _make_plan(optimizer, group, before: Optional[Plan], mastered: bool) -> Optional[Plan]:
    """before: the plan that does not hold any more."""
    entries = _entries(group)
    if entries is None:
        return None
    keys = _keys(optimizer, group, mastered)
    names = list(inspect.signature(_stock[_base(optimizer)]).parameters)[2:]
    trained = [e for e in entries if e]
    units = {unit: i for i, unit in enumerate(dict.fromkeys(e.home.unit for e in trained))}
    if keys:
        for entry in trained:  # in the order of the group, in which people go through the states with collectives
            optimizer.state[entry.home.param.sharded_param]
    trained.sort(key=lambda e: (units[e.home.unit], e.home.piece))
    counts = _counts(optimizer, trained)
    runs: List[Run] = []
    previous = None
    for entry, count in zip(trained, counts):
        home, state = entry.home, optimizer.state.get(entry.home.param.sharded_param, {})
        if any(state.get(k) is not None and not _fits(state[k], home.param.sharded_param, mastered) for k in keys):
            return None
        like = home.unit, count, tuple(state.get(k) is not None for k in keys)
        if like == previous and home.piece == runs[-1].last + 1:
            runs[-1].last = home.piece
            runs[-1].entries.append(entry)
        else:
            runs.append(Run(home.unit, home.piece, home.piece, [entry], torch.empty(0)))
        previous = like
    for run in runs:
        unit = run.unit
        run.param = unit.shard[unit.offsets[run.first] : unit.offsets[run.last] + unit.spec.pieces[run.last].count]
        new = [e.home.param.sharded_param for e in run.entries if not optimizer.state.get(e.home.param.sharded_param)]
        if new:  # torch makes the first states, with its checks
            _stock[_base(optimizer)](optimizer, {**group, "params": new}, *[group["amsgrad"] if n == "amsgrad" else [] for n in names])
        for key in keys:
            _take(optimizer, run, key, [old.state(key) for old in before.runs] if before else [], mastered)
    steps = _make_steps(optimizer, runs, mastered)
    firsts = None if steps is None else torch.tensor([run.at for run in runs], device=steps.device)
    return Plan(keys, mastered, list(group["params"]), entries, runs, steps, firsts)


def _counts(optimizer, trained) -> List[float]:
    """How many steps each parameter has had; 0 also for optimizers that do not count."""
    steps = [optimizer.state.get(e.home.param.sharded_param, {}).get("step") for e in trained]
    known = [s for s in steps if s is not None]
    values = iter(torch.stack([torch.as_tensor(s, dtype=torch.float64, device=known[0].device if torch.is_tensor(known[0]) else None)
                               for s in known]).tolist() if known else [])
    return [0.0 if s is None else next(values) for s in steps]


def _take(optimizer, run: Run, key: str, flats, mastered: bool) -> None:
    """The run's states of one kind into one flat tensor, unless they are one of `flats` already."""
    params = [e.home.param.sharded_param for e in run.entries]
    values = [optimizer.state[p].get(key) for p in params]
    if values[0] is None and not mastered:  # momentum before its first step
        return
    size, dtype = run.param.numel(), torch.float32 if mastered else values[0].dtype
    flat = next((f for f in flats if f is not None and f.numel() == size and f.dtype is dtype and all(v is not None and (
        not v._local_tensor.numel() or v._local_tensor.data_ptr() == run.part(f, e).data_ptr()) for e, v in zip(run.entries, values))), None)
    if flat is None:
        flat = run.param.float() if key == "master" else torch.zeros(size, dtype=dtype, device=run.param.device)
        for entry, value in zip(run.entries, values):
            if value is not None:
                run.part(flat, entry).copy_(value._local_tensor)
    run.spread(optimizer, key, flat)


def _make_steps(optimizer, runs: List[Run], mastered: bool) -> Optional[torch.Tensor]:
    first = optimizer.state.get(runs[0].entries[0].home.param.sharded_param, {}).get("step")
    if first is None:
        return None
    device = torch.device("cpu") if mastered else first.device  # our own step reads it there
    states = [(run, entry, optimizer.state[entry.home.param.sharded_param]) for run in runs for entry in run.entries]
    steps = torch.stack([torch.as_tensor(state["step"], dtype=first.dtype, device=device) for _, _, state in states])
    for i, (run, entry, state) in enumerate(states):
        state["step"] = steps[i]
        if entry is run.entries[0]:
            run.at = i
        entry.states["step"] = weakref.ref(state["step"])
    return steps


@torch.no_grad()
def _init_group(optimizer, group, *lists, **named):
    stock = _stock[_base(optimizer)]
    if named or torch._guards.TracingContext.try_get() is not None:
        return stock(optimizer, group, *lists, **named)
    mastered = _mastered(group)
    plan = _plan(optimizer, group, mastered) if fsdp2.roots else None
    if plan is not None:
        _fill(optimizer, plan, lists)
    elif mastered:
        _fill_each(optimizer, group, lists)
    else:
        _forget_masters(optimizer, group)
        unusual = stock(optimizer, group, *lists)  # complex or sparse
        if lists[0] and not unusual and fsdp1.roots and {id(p) for p in lists[0]} <= fsdp1.parameters():
            own_step.mark(lists[0])
        return unusual
    return False


def _plan(optimizer, group, mastered) -> Optional[Plan]:
    """None where the group is torch's own in this step."""
    plans = optimizer.__dict__.setdefault("_rc_plans", {})
    key = id(group["params"])
    plan = plans.get(key)
    if plan is not None:
        _drop_leftovers(optimizer, plan)
    if plan is None or not _holds(plan, optimizer, group, mastered):
        new = _make_plan(optimizer, group, plan, mastered)
        if new is None and plan is not None:
            plan.params = []  # its steps do not count on, so it does not hold any more
        if new is not None:
            plans[key] = new
            _remember_states(optimizer)
        return new
    return plan


def _fill(optimizer, plan: Plan, lists) -> None:
    """A few flat tensors into torch's lists."""
    by_name = _arguments(optimizer, lists)
    if plan.steps is not None:
        if "step" in by_name:
            by_name["step"] += plan.steps.index_select(0, plan.firsts).unbind()  # copies, which torch's function counts up
        plan.steps.add_(1)
        if getattr(optimizer, "found_inf", None) is not None:  # torch's fused function takes a step back that it leaves out
            plan.steps.sub_(optimizer.found_inf.to(plan.steps.device))
        plan.seen = plan.steps.clone() if plan.steps.device.type == "cpu" else None
    by_name["param"] += [run.param for run in plan.runs]
    by_name["grad"] += [run.gradient() for run in plan.runs]
    for key in plan.keys:
        if key in by_name:
            by_name[key] += [run.state(key) for run in plan.runs]
    own_step.mark(lists[0], [run.state("master") for run in plan.runs] if plan.mastered else None)
    if "momentum_buffer" in plan.keys:
        _hook(optimizer)


def _fill_each(optimizer, group, lists) -> None:
    """Parameters one by one, with masters."""
    by_name = _arguments(optimizer, lists)
    found = []
    for param in group["params"]:
        if param.grad is None:
            continue
        state, local = optimizer.state[param], _local(param)
        for key in _keys(optimizer, group, True):
            value = state.get(key)
            if value is None:
                state[key] = _like(param, local.float() if key == "master" else torch.zeros_like(local, dtype=torch.float32))
            elif value.dtype is not torch.float32:  # of a run without masters
                state[key] = _like(param, _local(value).float())
            if key in by_name:
                by_name[key].append(_local(state[key]))
        if "step" in by_name:
            state["step"] = torch.as_tensor(state.get("step", 0.0), dtype=torch.float32, device="cpu")
            by_name["step"].append(state["step"])
        by_name["param"].append(local)
        by_name["grad"].append(_local(param.grad))
        found.append(_local(state["master"]))
    own_step.mark(lists[0], found)
    if "momentum_buffer" in by_name:
        optimizer.__dict__.setdefault("_rc_locals", []).extend(local for local in by_name["param"] if local not in optimizer.state)
        _hook(optimizer)


def _hook(optimizer) -> None:
    """What SGD leaves behind is cleaned up after each step, before the user's hooks look."""
    if "_rc_hook" not in optimizer.__dict__:
        optimizer._rc_hook = optimizer.register_step_post_hook(_harvest)
        optimizer._optimizer_step_post_hooks.move_to_end(optimizer._rc_hook.id, last=False)


def _forget_masters(optimizer, group) -> None:
    """States as torch's step wants them."""
    for param in group["params"]:
        state = optimizer.state.get(param)
        if state and state.pop("master", None) is not None:
            for key, value in state.items():
                if key != "step" and isinstance(value, torch.Tensor):
                    state[key] = value.to(param.dtype)


def _drop_leftovers(optimizer, plan):
    """What torch's SGD has put into optimizer.state under our tensors. Yields it by run."""
    return [(run, optimizer.state.pop(run.param, None)) for run in plan.runs]


def _harvest(optimizer, args, kwargs):
    """SGD writes its momentum, which the first step makes, to optimizer.state: from there to the parameters that it is of."""
    for local in optimizer.__dict__.pop("_rc_locals", ()):  # of parameters that are DTensors
        optimizer.state.pop(local, None)
    for plan in optimizer.__dict__.get("_rc_plans", {}).values():
        for run, state in _drop_leftovers(optimizer, plan):
            if state and "momentum_buffer" not in run.states:
                run.spread(optimizer, "momentum_buffer", state["momentum_buffer"])


# Clipping


def _runs_of(grads):
    """[(unit, first piece, last piece)] of gradients that are all ours and on one mesh, else None."""
    where = {}
    for home in fsdp2.homes().values():
        own = home.unit.grads[home.piece]
        if own is not None:
            where[id(own)] = home
    homes = [where.pop(id(g), None) for g in grads]
    if not homes or None in homes or any(h.param._spmd_mesh != homes[0].param._spmd_mesh for h in homes):
        return None
    runs = []
    units = {unit: i for i, unit in enumerate(dict.fromkeys(h.unit for h in homes))}
    for home in sorted(homes, key=lambda h: (units[h.unit], h.piece)):
        at = home.unit.grad_offsets[home.piece]
        end = at + home.unit.spec.pieces[home.piece].count
        if runs and runs[-1][0] is home.unit and at - runs[-1][2] < 32 and not any(
                runs[-1][2] <= o < at for o in home.unit.grad_offsets):
            runs[-1][2] = end
        else:
            runs.append([home.unit, at, end])
    return homes[0], [unit.grad[at:end] for unit, at, end in runs]


def _norm(flat: torch.Tensor, norm_type: float) -> torch.Tensor:
    """On the CPU in parts: one long sum in f32 would lose digits."""
    dtype = torch.float32 if flat.dtype in (torch.bfloat16, torch.float16) else flat.dtype
    if flat.device.type != "cpu" or flat.numel() <= 1 << 15:
        return torch.linalg.vector_norm(flat, norm_type, dtype=dtype)
    whole = flat.numel() >> 14 << 14
    parts = torch.linalg.vector_norm(flat[:whole].view(-1, 1 << 14), norm_type, dim=1, dtype=dtype)
    rest = torch.linalg.vector_norm(flat[whole:], norm_type, dtype=dtype) if whole < flat.numel() else parts.new_zeros(())
    return torch.linalg.vector_norm(torch.cat([parts, rest.view(1)]), norm_type)


@torch.no_grad()
def _total_norm(grads, norm_type, error_if_nonfinite):
    """(norm as a DTensor, flat gradients), or None when it is torch's to do."""
    norm_type = float(norm_type)
    if not norm_type > 0:
        return None
    found = _runs_of(grads)
    if found is None:
        return None
    home, flats = found
    total = torch.linalg.vector_norm(torch.stack([_norm(f, norm_type) for f in flats]), norm_type)
    group = home.group.mesh_info.shard_process_group
    if norm_type == float("inf"):
        dist.all_reduce(total, dist.ReduceOp.MAX, group)
    else:
        total = total.pow_(norm_type)
        dist.all_reduce(total, dist.ReduceOp.SUM, group)
        total = total.pow_(1 / norm_type)
    total = total.to(functools.reduce(torch.promote_types, {g.dtype for g in grads}))
    if error_if_nonfinite and not total.isfinite():
        raise RuntimeError("The total norm of order %s of the gradients is non-finite (%s), so they cannot be clipped. "
                           "error_if_nonfinite=False scales them by it all the same" % (norm_type, total.item()))
    mesh = home.param._spmd_mesh
    return DTensor.from_local(total, mesh, [Replicate()] * mesh.ndim, run_check=False), flats


def _scale(flats, max_norm, total) -> None:
    coefficient = torch.clamp(float(max_norm) / (total + 1e-6), max=1.0)
    for flat in flats:
        flat.mul_(coefficient)


def _listed(tensors):
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)


def get_total_norm(tensors, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    tensors = _listed(tensors)
    found = _total_norm(tensors, norm_type, error_if_nonfinite) if fsdp2.roots else None
    return found[0] if found else _stock["get_total_norm"](tensors, norm_type, error_if_nonfinite, foreach)


@torch.no_grad()
def clip_grads_with_norm_(parameters, max_norm, total_norm, foreach=None):
    parameters = _listed(parameters)
    found = _runs_of([p.grad for p in parameters if p.grad is not None]) if fsdp2.roots else None
    if not found:
        return _stock["clip_grads_with_norm_"](parameters, max_norm, total_norm, foreach)
    _scale(found[1], max_norm, total_norm.full_tensor() if isinstance(total_norm, DTensor) else total_norm)


@torch.no_grad()
def clip_grad_norm_(parameters, max_norm, norm_type=2.0, error_if_nonfinite=False, foreach=None):
    listed = _listed(parameters)
    grads = [p.grad for p in listed if p.grad is not None]
    found = _total_norm(grads, norm_type, error_if_nonfinite) if fsdp2.roots else None
    if not found:  # an iterator that was empty goes on as it is: torch warns about it
        return _stock["clip_grad_norm_"](listed or parameters, max_norm, norm_type, error_if_nonfinite, foreach)
    _scale(found[1], max_norm, found[0]._local_tensor)
    return found[0]


def _value_to_load(stock, param, value, param_id, param_groups, key=None):
    """torch's load_state_dict brings states to their parameter's type; masters and what goes with them stay as they are."""
    if masters and key in ("master", "exp_avg", "exp_avg_sq", "momentum_buffer") and param.dtype in own_step.HALVES and \
            value.dtype is torch.float32 and _all_ours([param]):
        return value.to(param.device)
    return stock(param, value, param_id, param_groups, key)


def _replace(old, new) -> None:
    """In every module that holds it."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict):
            for name, value in list(names.items()):
                if value is old and module.__name__ != __name__:
                    names[name] = new


CLIPPING = {"get_total_norm": get_total_norm, "clip_grads_with_norm_": clip_grads_with_norm_, "clip_grad_norm_": clip_grad_norm_}


def install():
    if _stock:
        return
    own_step.install()
    _stock["load"] = stock = torch.optim.Optimizer._process_value_according_to_param_policy
    ours = functools.wraps(stock)(functools.partial(_value_to_load, stock))
    torch.optim.Optimizer._process_value_according_to_param_policy = staticmethod(ours)
    for cls in (torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD):
        if "_init_group" in cls.__dict__:  # AdamW has none of its own since torch 2.7
            _stock[cls] = cls._init_group
            cls._init_group = functools.wraps(cls._init_group)(_init_group)
    for name, ours in CLIPPING.items():
        where = vars(torch.nn.utils.clip_grad)
        old = where.get(name, where.get("_" + name))  # torch 2.6 and later have two of them as _get_total_norm
        if old is not None:
            _stock[name] = old
            _replace(old, functools.wraps(old)(ours))


def uninstall():
    global masters
    masters = False
    own_step.uninstall()
    torch.optim.Optimizer._process_value_according_to_param_policy = staticmethod(_stock.pop("load"))
    while _stock:
        key, old = _stock.popitem()
        if isinstance(key, type):
            key._init_group = old
        else:
            _replace(CLIPPING[key], old)
