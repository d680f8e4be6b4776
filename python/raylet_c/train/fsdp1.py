"""torch's FullyShardedDataParallel on the engine.

Construction, flat parameters, state dicts and summon_full_params stay torch's: they act on the sharded flat parameter. When a root first
runs forward, each instance that has parameters becomes one unit of the engine, whose one piece is the flat parameter; from then on forward
and what hangs on it is answered here. What is not served (see `refusal`) keeps torch's run time, with one log line.

While a unit is gathered, modules hold the engine's leaf tensors. Outside they hold what torch puts there: the original parameters
(use_orig_params=True), or tensors without memory.
"""
import contextlib
import functools
import inspect
import logging
import os
import weakref

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp import _init_utils
from torch.distributed.fsdp import _runtime_utils as runtime
from torch.distributed.fsdp._common_utils import HandleTrainingState, TrainingState
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.utils import _apply_to_tensors, _cast_forward_inputs

from .levels import Levels
from .model import TYPES, Model, PieceSpec, TensorSpec, UnitSpec, storage_users

log = logging.getLogger("raylet_c.train")

FREES = (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)  # gathered parameters are freed after forward
KEEPS = (ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy._HYBRID_SHARD_ZERO2)
ENVIRONMENT = ("FSDP_USE_FULL_PREC_IN_EVAL", "FSDP_USE_FAKE_ALL_GATHER", "FSDP_USE_FAKE_REDUCE")
_stock = {}  # (class or module, name) -> torch's own
roots = weakref.WeakSet()  # what is on the engine now


def parameters():
    """The ids of what optimizers step."""
    return {id(p) for root in roots for s in root.states for p in (s._handle.flat_param._params or (s._handle.flat_param,))}


def refusal(root):
    """Why a root is left to torch: what is not served, by the name that the user gave it; None when it is served."""
    states = [s for s in root._all_fsdp_states if s._handle]
    if not states:
        return "a model without parameters"
    if root.compute_device.type not in ("cpu", "cuda"):
        return "devices of type %s" % root.compute_device.type
    for name in ENVIRONMENT:
        if os.environ.get(name) == "1":
            return name + "=1"
    for state in states:
        handle, flat = state._handle, state._handle.flat_param
        if state.world_size == 1:
            return "one rank (which shards nothing)"
        if state.sharding_strategy not in FREES + KEEPS:
            return "sharding_strategy=%s" % state.sharding_strategy.name
        if state.cpu_offload.offload_params:
            return "cpu_offload=CPUOffload(offload_params=True)"
        if state._comm_hook is not None:
            return "register_comm_hook"
        if state.process_group is not root.process_group or _replicas(state) is not _replicas(root):
            return "different process_groups in one model"
        if state._fsdp_extension is not None or any(e is not None for e in flat._param_extensions):
            return "a device_mesh with tensor parallelism"
        if handle._has_optim_in_backward:
            return "an optimizer that steps in the backward pass"
        if not all(getattr(flat, "_contiguities", ())):  # torch 2.5 and later; before, views of a flat parameter are contiguous
            return "parameters that are not contiguous (%s)" % flat._fqns[flat._contiguities.index(False)]
        for dtype in (flat.dtype, handle._fwd_bwd_param_dtype, handle._reduce_dtype):
            if dtype not in TYPES:
                return "%s parameters or messages (%s)" % (dtype, flat._fqns[0])
    return None


class Root:
    """One root's model on the engine, and the rules of FSDP1 for it."""

    def __init__(self, state):
        self.state = state
        self.states = [s for s in state._all_fsdp_states if s._handle]
        device = state.compute_device
        replicas = _replicas(state)
        self.replicated = replicas is not None and replicas.size() > 1
        levels = Levels(state.process_group, replicas if self.replicated else None, device)
        self.model = Model(device, levels, [self._spec(s) for s in self.states], self)
        self.running = 0  # depth of forward calls
        for state, unit in zip(self.states, self.model.units):
            state._rc_unit = unit
            unit.giver = (_Originals if state._handle._use_orig_params else _Flat)(self, state, unit)
            unit.grad_users = unit.giver.held
            if state._handle._use_orig_params:
                state._handle.__class__, state._handle._rc_leave = _Handle, functools.partial(self.model.leave, unit)
            self._adopt(state._handle, unit)
        roots.add(self)

    def _spec(self, state):
        handle, flat = state._handle, state._handle.flat_param
        places = {(i.module, i.param_name): [(i.module, i.param_name)] for i in flat._param_infos}
        for i in flat._shared_param_infos:
            places[i.prim_module, i.prim_param_name].append((i.module, i.param_name))
        sharded = flat._params if handle._use_orig_params else self._without_memory(handle)
        tensors, offset = [], 0
        names = iter(zip(sharded, flat._shapes, flat._param_infos))
        for count, padding in zip(flat._numels_with_padding, flat._is_padding_mask):
            if not padding:
                tensor, shape, info = next(names)
                where = places[info.module, info.param_name]
                where = tuple((m._parameters if handle._use_orig_params else m.__dict__, n) for m, n in where)
                tensors.append(TensorSpec(0, offset, shape, tensor, where, tensor.requires_grad))
            offset += count
        inner = any(o is not state and o in state.modules() for o in self.states)
        piece = PieceSpec(flat._sharded_size.numel(), flat._unpadded_unsharded_size.numel())
        alone = inner or state is self.state or state.sharding_strategy in KEEPS
        return UnitSpec(_name(state, self.state), [piece], tensors, flat.dtype, handle._fwd_bwd_param_dtype, handle._reduce_dtype, alone,
                        flat=True, compact=handle._use_orig_params)

    def _without_memory(self, handle):
        """What modules hold outside of forward and backward when the flat parameter is the only one that users see."""
        flat = handle.flat_param
        whole = torch.empty(flat._unpadded_unsharded_size, dtype=flat.dtype, device=flat.device)
        views = [v.detach().requires_grad_(flat.requires_grad) for v in handle._get_unflat_views(whole)]
        whole.untyped_storage().resize_(0)
        return views

    @torch.no_grad()
    def _adopt(self, handle, unit):
        """The shard's memory becomes the engine's; the Parameter objects, which optimizers hold, stay."""
        self.model.changed()
        flat, home = handle.flat_param, self.model.piece_of(unit, 0)
        if flat.dtype != home.dtype or flat.numel() != home.numel():
            raise RuntimeError("unit %s: its flat parameter was %d elements of %s at the first forward pass and is %d of %s now: wrap "
                               "the model again" % (unit.spec.name, home.numel(), home.dtype, flat.numel(), flat.dtype))
        if flat.data_ptr() != home.data_ptr():
            home.copy_(flat)
        flat.data = flat._local_shard = home
        if handle._use_orig_params:
            handle._use_sharded_views()

    # Forward

    def forward(self, state, args, kwargs):
        model, handle, unit = self.model, state._handle, state.__dict__.get("_rc_unit")
        if model._in_backward and torch._C._current_graph_task_id() == -1:  # the last backward pass ended in an exception
            self.reset()
        if handle and handle._training_state == HandleTrainingState.BACKWARD_PRE:  # recomputation of an activation checkpoint
            model.enter(unit, True, False)
            return state._fsdp_wrapped_module(*args, **kwargs)
        if state is self.state:
            args, kwargs = runtime._root_pre_forward(state, state, args, kwargs)
        if not self.running and not model._in_backward:
            self.follow_changes()
            model.begin()
        self.running += 1
        try:
            state.training_state = TrainingState.FORWARD_BACKWARD
            if handle:
                handle._training_state = HandleTrainingState.FORWARD
                model.enter(unit, model._in_backward, not model._in_backward)
                if state.mixed_precision.cast_forward_inputs:
                    args, kwargs = _cast_forward_inputs(state.mixed_precision.param_dtype, *args, **kwargs)
            output = state._fsdp_wrapped_module(*args, **kwargs)
        except BaseException:
            if self.running == 1 and not model._in_backward:
                self.reset()
            raise
        finally:
            self.running -= 1
        if handle and not self._stays(state):
            model.leave(unit)
        if torch.is_grad_enabled():
            output = self._watch(state, output)
        state.training_state = TrainingState.IDLE
        if handle:
            handle._training_state = HandleTrainingState.IDLE
        return output

    def _stays(self, state):
        """Whether modules keep the gathered parameters after forward, as torch's do where they are not freed then."""
        if state._handle._use_orig_params:
            return torch.is_grad_enabled() and state.sharding_strategy in KEEPS
        return state is self.state or state.sharding_strategy in KEEPS

    def follow_changes(self):
        """Shards that were replaced, parameters that were frozen or thawed since the last step."""
        for state, unit in zip(self.states, self.model.units):
            handle, flat = state._handle, state._handle.flat_param
            self.model.leave(unit)
            if handle._use_orig_params:
                handle._writeback_orig_params()
            home = self.model.piece_of(unit, 0).data_ptr()
            if flat.data_ptr() != home or flat._local_shard.data_ptr() != home:
                self._adopt(handle, unit)
            for tensor, spec in zip(flat._params or (), unit.spec.tensors):
                if spec.sharded is not tensor:
                    spec.sharded, unit.trained = tensor, ()
            if not handle._use_orig_params and unit.spec.tensors[0].sharded.requires_grad != flat.requires_grad:
                for spec in unit.spec.tensors:
                    spec.sharded.requires_grad_(flat.requires_grad)
            if self.model.follow_trained(unit):
                unit.giver.users = storage_users(unit.grad)
            unit.giver.follow()

    # Backward

    def _watch(self, state, output):
        """Learns when the backward pass comes to what this forward call has made."""
        unit = state.__dict__.get("_rc_unit")
        hook = torch.utils.hooks.unserializable_hook(functools.partial(self._pre_backward, state, []))
        watched = False

        def register(tensor):
            nonlocal watched
            if tensor.requires_grad:
                tensor.register_hook(hook)
                watched = True
            return tensor

        output = _apply_to_tensors(register, output)
        if unit and watched:
            unit.uses += 1
        return output

    def _pre_backward(self, state, seen, grad):
        """seen: the backward pass that was here last, with the gradient of an output of the same forward call."""
        if self.model.first_of_pass(seen):
            handle = state._handle
            self.model.begin_backward()
            state.training_state = TrainingState.FORWARD_BACKWARD
            if handle:
                if not state._rc_unit.in_backward:
                    handle._training_state = HandleTrainingState.BACKWARD_PRE
                    state._rc_unit.giver.prepare()
                self.model.pre_backward(state._rc_unit)
        return grad

    @torch.no_grad()
    def unit_reduce(self, model, unit):
        state = self.states[unit.index]
        if any(g.grad is not None for g in unit.gathered):
            if state._sync_gradients:
                unit.giver.reduce()
            else:
                unit.giver.keep()

    def unit_done(self, model, unit):
        model.leave(unit)
        self.states[unit.index]._handle._training_state = HandleTrainingState.IDLE

    @torch.no_grad()
    def backward_done(self, model):
        for state, unit in zip(self.states, model.units):
            model.leave(unit)
            unit.giver.done()
            state._handle._training_state = HandleTrainingState.IDLE
        for state in self.state._all_fsdp_states:
            state.training_state = TrainingState.IDLE

    def reset(self):
        """After an exception in forward or backward: sharded everywhere, as before the step."""
        self.model.reset()
        for state in self.state._all_fsdp_states:
            state.training_state = TrainingState.IDLE
            if state._handle:
                state._handle._training_state = HandleTrainingState.IDLE
                state._handle.flat_param.__dict__.pop("_saved_grad_shard", None)  # of the backward pass that was not ended

    def release(self):
        """Back to torch's run time, between steps: the shards into memory of torch's own."""
        for state, unit in zip(self.states, self.model.units):
            handle, flat = state._handle, state._handle.flat_param
            self.model.leave(unit)
            flat.data = flat._local_shard = flat.data.clone()
            if handle._use_orig_params:
                flat.grad = handle.collect_grads()
                handle.__class__ = FlatParamHandle
                handle._use_sharded_views()
                handle._use_sharded_grad_views()
        for state in self.state._all_fsdp_states:
            state._rc_root = None
        roots.discard(self)


class _Grads:
    """The gradients of one unit as users see them. What is given out are new views each time: so the users of the storage tell whether it
    is wanted, set somewhere or held by the user."""

    def __init__(self, root, state, unit):
        self.root, self.state, self.unit = root, state, unit
        self.handle, self.flat = state._handle, state._handle.flat_param
        self.users = storage_users(unit.grad)

    def held(self):
        return storage_users(self.unit.grad) > self.users

    def fresh(self):
        """Memory that no one else holds."""
        if self.held():
            self.unit.grad = torch.empty_like(self.unit.grad)

    def fill(self):
        """Memory that gradients of before are brought to, to be added to."""
        storage = self.unit.grad.untyped_storage()
        if storage.size() == 0:
            storage.resize_(self.unit.grad_chunk * self.unit.spec.dtype.itemsize)

    def run(self, add):
        factors = float(self.state._gradient_predivide_factor), float(self.state._gradient_postdivide_factor)
        self.root.model.reduce(self.unit, self.handle._reduce_dtype, False, *factors, self.root.replicated, add)

    def low_precision(self):
        return self.handle._keep_low_precision_grads and self.unit.spec.param_dtype != self.unit.spec.dtype


class _Flat(_Grads):
    """use_orig_params=False: the flat parameter has the gradient."""

    whole = None  # what passes without reduction have summed up: the gathered parameters' gradients are views of it

    def follow(self):
        if self.whole is not None and self.flat.grad is None:  # cleared by the optimizer
            self.whole = None
            for tensor in self.unit.gathered:
                tensor.grad = None

    def prepare(self):
        self.handle.prepare_gradient_for_backward()

    def reduce(self):
        flat, unit = self.flat, self.unit
        if self.whole is not None:
            self.whole = flat.grad = None
        saved = getattr(flat, "_saved_grad_shard", None)
        if saved is None or saved.data_ptr() != unit.grad.data_ptr():
            self.fresh()
            if saved is not None:  # the user's own
                self.fill()
                unit.grad.copy_(saved)
        self.run(saved is not None)
        flat._saved_grad_shard = unit.grad.detach()

    def keep(self):
        flat, unit = self.flat, self.unit
        if self.whole is None:
            self.whole = torch.zeros(flat._unpadded_unsharded_size, dtype=unit.spec.param_dtype, device=flat.device)
        for tensor, spec in zip(unit.gathered, unit.spec.tensors):
            view = self.whole[spec.offset : spec.offset + spec.shape.numel()].view(spec.shape)
            if tensor.grad is not None and tensor.grad.data_ptr() != view.data_ptr():
                tensor.grad = view.copy_(tensor.grad)
        if flat.grad is None:
            flat.grad = torch.empty_like(flat)
            flat.grad.data = self.whole  # .data: its size and type are not the shard's

    def done(self):
        if self.flat.requires_grad and self.state._sync_gradients:
            self.flat._post_backward_called = hasattr(self.flat, "_saved_grad_shard")
            self.handle.prepare_gradient_for_optim()
            self.flat._post_backward_called = False


class _Originals(_Grads):
    """use_orig_params=True: the original parameters have the gradients, the flat parameter has none."""

    saved = None  # their gradients of before, while they have unreduced ones

    def follow(self):
        if self.saved is not None:
            for param, tensor in zip(self.flat._params, self.unit.gathered):
                if param.grad is None:  # cleared by the optimizer
                    tensor.grad = None

    def prepare(self):
        pass

    def reduce(self):
        unit, params = self.unit, self.flat._params
        if self.saved is not None:
            for param, grad in zip(params, self.saved):
                param.grad = grad
            self.saved = None
        old = [params[i].grad for i, _, _ in unit.grad_parts]
        size = unit.spec.dtype.itemsize
        ours = [g is not None and g.data_ptr() == unit.grad.data_ptr() + at * size for g, (_, at, _) in zip(old, unit.grad_parts)]
        if not any(ours):
            self.fresh()
        add = any(g is not None for g in old)
        if add and not all(ours):
            self.fill()
            for grad, is_ours, (_, at, count) in zip(old, ours, unit.grad_parts):
                if not is_ours:
                    part = unit.grad[at : at + count]
                    part.zero_() if grad is None else part.copy_(grad)
        self.run(add)
        self.give(unit.grad)

    def give(self, grad):
        sizes, at = [], 0
        for _, start, count in self.unit.grad_parts:
            sizes += [start - at, count]
            at = start + count
        views = grad.split(sizes + [grad.numel() - at])
        for (i, _, _), view in zip(self.unit.grad_parts, views[1::2]):
            self.flat._params[i].grad = view

    def keep(self):
        """Nothing moves: see done()."""

    def done(self):
        params, unit = self.flat._params, self.unit
        if not self.state._sync_gradients:
            waiting = [(p, t.grad) for p, t in zip(params, unit.gathered) if t.grad is not None]
            if waiting and self.saved is None:
                self.saved = [p.grad for p in params]
                for param in params:
                    param.grad = None
            for param, grad in waiting:
                if param.grad is None:
                    param.grad = torch.empty_like(param)
                param.grad.data = grad  # .data: its size and type are not the parameter's
        elif self.low_precision() and self.held():
            for i, _, _ in unit.grad_parts:
                low = params[i].grad.to(unit.spec.param_dtype)
                params[i].grad = torch.empty_like(params[i])
                params[i].grad.data = low


class _Handle(FlatParamHandle):
    """A handle whose parameters the engine gathers. Original parameters have their gradients by themselves; torch's methods, called between
    steps, expect that they are views of the flat parameter's."""

    @torch.no_grad()
    def _writeback_orig_params(self):
        wrote = False
        flat = self.flat_param
        self._rc_leave()
        if self.is_sharded(flat):
            for i, (info, part) in enumerate(zip(flat._param_infos, flat._shard_param_infos)):
                param = info.module._parameters.get(info.param_name)
                if param is None or not part.in_shard:  # deregistered, as while the model is saved
                    continue
                flat._params[i] = param
                home = flat[part.offset_in_shard : part.offset_in_shard + part.numel_in_shard]
                if param.data_ptr() != home.data_ptr():
                    self._writeback_tensor(param, flat, i, home.shape, part.offset_in_shard, True)
                    wrote = True
        return wrote

    def _use_sharded_grad_views(self):
        if self.sharded_grad is not None:
            super()._use_sharded_grad_views()

    @torch.no_grad()
    def collect_grads(self):
        """The flat gradient of what the original parameters have; None when they have none."""
        flat = self.flat_param
        grads = [p.grad for p in flat._params]
        if all(g is None for g in grads):
            return None
        whole = torch.zeros(flat._sharded_size, dtype=flat.dtype, device=flat.device)
        for i, (part, grad) in enumerate(zip(flat._shard_param_infos, grads)):
            flat._is_grad_none_mask[i] = grad is None
            if grad is not None:
                whole[part.offset_in_shard : part.offset_in_shard + part.numel_in_shard].copy_(grad)
        return whole

    @torch.no_grad()
    def unshard_grad(self):
        flat, unsharded = self.flat_param, self.flat_param.data
        flat.data = flat._local_shard  # a gradient has to be of its parameter's size
        flat.grad = self.collect_grads()
        flat.data = unsharded
        super().unshard_grad()

    def reshard_grad(self):
        if self.flat_param._saved_grad_shard is None:  # none on this rank
            for param in self.flat_param._params:
                param.grad = None
        super().reshard_grad()
        self.flat_param.grad = None


def _replicas(state):
    """The group of ranks that hold the same shard; None without."""
    return getattr(state, "_inter_node_pg", None) if state.sharding_strategy in runtime.HYBRID_SHARDING_STRATEGIES else None


def _name(state, root):
    for name, module in root.named_modules():
        if module is state:
            return name.replace("_fsdp_wrapped_module.", "").replace("_fsdp_wrapped_module", "") or "the root"
    return "the root"


def _take(root):
    """Decides whether the engine serves a root. The answer is the same on all ranks: it depends on arguments only."""
    served = None
    reason = refusal(root)
    if reason is None:
        try:
            served = Root(root)
        except NotImplementedError as error:
            reason = str(error)
    if reason is not None:
        log.warning("FullyShardedDataParallel stays torch's own here: %s is not served by raylet_c", reason)
    for state in root._all_fsdp_states:
        state._rc_root = served


# FullyShardedDataParallel's methods


def _init(self, *args, **kwargs):
    """torch's own refuses a model on the CPU unless the device is named."""
    bound = inspect.signature(_stock[FSDP, "__init__"]).bind(self, *args, **kwargs)
    if bound.arguments.get("device_id") is None and not torch.cuda.is_available():
        bound.arguments["device_id"] = torch.device("cpu")
    _stock[FSDP, "__init__"](*bound.args, **bound.kwargs)


def _forward(self, *args, **kwargs):
    if self._is_root is None:
        runtime._lazy_init(self, self)
        if self._is_root:
            _take(self)
    elif self._is_root and "_rc_root" not in self.__dict__:
        _take(self)
    root = self.__dict__.get("_rc_root")
    if root is None:
        return _stock[FSDP, "forward"](self, *args, **kwargs)
    with torch.autograd.profiler.record_function("FullyShardedDataParallel.forward"):
        return root.forward(self, args, kwargs)


def _register_comm_hook(self, state, hook):
    _stock[FSDP, "register_comm_hook"](self, state, hook)
    root = self.__dict__.get("_rc_root")
    if root is not None:
        log.warning("FullyShardedDataParallel goes back to torch's own here: register_comm_hook is not served by raylet_c")
        root.release()


def _to_cpu(handle):
    """torch's own frees what it has just handed out where parameters are on the CPU already."""
    return contextlib.nullcontext() if handle.device.type == "cpu" else _stock[FlatParamHandle, "to_cpu"](handle)


def _check_states(module_states):
    """torch's own refuses to broadcast from the CPU, for which gloo is good enough."""
    if not dist.is_initialized() or "gloo" not in str(dist.get_backend_config()) or any(t.is_cuda for t in module_states):
        _stock[_init_utils, "_check_module_states_for_sync_module_states"](module_states)


@functools.lru_cache(None)
def _hide_from_compiler():
    from torch._dynamo import trace_rules

    trace_rules.add("raylet_c.train")


def _compile(*args, **kwargs):
    """torch.compile passes over what runs here, as over torch's own FSDP, and compiles the modules inside."""
    _hide_from_compiler()
    return _stock[torch, "compile"](*args, **kwargs)


PLACES = (
    (torch, "compile", _compile),
    (FSDP, "__init__", _init),
    (FSDP, "forward", _forward),
    (FSDP, "register_comm_hook", _register_comm_hook),
    (FlatParamHandle, "to_cpu", _to_cpu),
    (_init_utils, "_check_module_states_for_sync_module_states", _check_states),
)


def install():
    """FullyShardedDataParallel's methods ask the engine first. The class stays the one that users have."""
    if _stock:
        return
    for where, name, ours in PLACES:
        _stock[where, name] = getattr(where, name)
        setattr(where, name, functools.wraps(_stock[where, name])(ours))


def uninstall():
    """Between steps. Models that are on the engine go on with torch's run time."""
    for root in list(roots):
        root.release()
    for (where, name), stock in _stock.items():
        setattr(where, name, stock)
    _stock.clear()
