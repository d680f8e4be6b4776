"""torch's FullyShardedDataParallel on the engine.

Construction, flat parameters, state dicts and summon_full_params stay torch's: they act on the sharded flat parameter. When a root first runs
forward, each instance that has parameters becomes one unit of the engine, whose one piece is the flat parameter; from then on forward and
what hangs on it is answered here. What is not served (see `refusal`) keeps torch's run time, with one log line.

While a unit is gathered, modules hold the engine's leaf tensors. Outside they hold what torch puts there: the original parameters
(use_orig_params=True), or tensors without memory.
"""
import functools
import inspect
import logging
import os

import torch
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import ShardingStrategy
from torch.distributed.fsdp import _runtime_utils as runtime
from torch.distributed.fsdp._common_utils import HandleTrainingState, TrainingState
from torch.distributed.utils import _apply_to_tensors, _cast_forward_inputs

from . import comm
from .model import TYPES, Model, PieceSpec, TensorSpec, UnitSpec

log = logging.getLogger("raylet_c.train")

SERVED = (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP)
ENVIRONMENT = ("FSDP_USE_FULL_PREC_IN_EVAL", "FSDP_USE_FAKE_ALL_GATHER", "FSDP_USE_FAKE_REDUCE")
_stock = {}  # name -> torch's own method of FullyShardedDataParallel


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
        if state.sharding_strategy not in SERVED:
            return "sharding_strategy=%s" % state.sharding_strategy.name
        if state.cpu_offload.offload_params:
            return "cpu_offload=CPUOffload(offload_params=True)"
        if state._comm_hook is not None:
            return "register_comm_hook"
        if state.process_group is not root.process_group:
            return "different process_groups in one model"
        if state._fsdp_extension is not None or any(e is not None for e in flat._param_extensions):
            return "a device_mesh with tensor parallelism"
        if handle._has_optim_in_backward:
            return "an optimizer that steps in the backward pass"
        if not all(flat._contiguities):
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
        gather = comm.connect(state.process_group, device)
        reduce = comm.connect(state.process_group, device) if device.type == "cuda" else gather
        self.model = Model(device, (gather, reduce, None), [self._spec(s) for s in self.states], self)
        self.running = 0  # depth of forward calls
        for state, unit in zip(self.states, self.model.units):
            state._rc_unit = unit
            unit.unreduced = None  # the whole gradient that passes without reduction have summed up
            unit.grad_users = functools.partial(self._grad_users, unit)
            self._adopt(state._handle, unit)
            self._layout_grads(state._handle, unit)

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
                where = tuple((m._parameters if handle._use_orig_params else m.__dict__, n) for m, n in places[info.module, info.param_name])
                tensors.append(TensorSpec(0, offset, shape, tensor, where, tensor.requires_grad))
            offset += count
        inner = any(o is not state and o in state.modules() for o in self.states)
        piece = PieceSpec(flat._sharded_size.numel(), flat._unpadded_unsharded_size.numel())
        return UnitSpec(_name(state, self.state), [piece], tensors, flat.dtype, handle._fwd_bwd_param_dtype, handle._reduce_dtype,
                        alone=inner or state is self.state or state.sharding_strategy == ShardingStrategy.SHARD_GRAD_OP, flat=True)

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
        flat, home = handle.flat_param, self.model.piece_of(unit, 0)
        if flat.dtype != home.dtype or flat.numel() != home.numel():
            raise RuntimeError("unit %s: its flat parameter was %d elements of %s at the first forward pass and is %d of %s now: wrap the model "
                               "again" % (unit.spec.name, home.numel(), home.dtype, flat.numel(), flat.dtype))
        if flat.data_ptr() != home.data_ptr():
            home.copy_(flat)
        flat.data = flat._local_shard = home
        if handle._use_orig_params:
            handle._use_sharded_views()

    def _layout_grads(self, handle, unit):
        """Where the original parameters' gradients lie in the shard's: sizes of all parts, and what parts belong to a parameter."""
        unit.parts, unit.owners, at = [], [], 0
        if handle._use_orig_params and unit.grad_chunk:
            for i, (param, info) in enumerate(zip(handle.flat_param._params, handle.flat_param._shard_param_infos)):
                if info.in_shard and unit.trained[i]:
                    unit.owners.append((i, param, len(unit.parts) + 1))
                    unit.parts += [info.offset_in_shard - at, info.numel_in_shard]
                    at = info.offset_in_shard + info.numel_in_shard
            unit.parts.append(unit.grad_chunk - at)
        unit.own_users = _storage_users(unit.grad)

    def _grad_users(self, unit):
        """Whether a gradient is set, or one that was is still held by the user. What is given out is a new view each time, so it counts."""
        return _storage_users(unit.grad) > unit.own_users

    # Forward

    def forward(self, state, args, kwargs):
        model, handle, unit = self.model, state._handle, state.__dict__.get("_rc_unit")
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
            return torch.is_grad_enabled() and state.sharding_strategy == ShardingStrategy.SHARD_GRAD_OP
        return state is self.state or state.sharding_strategy == ShardingStrategy.SHARD_GRAD_OP

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
            if unit.unreduced is not None and flat.grad is None:  # cleared by the optimizer
                self._drop_unreduced(unit)
            for tensor, spec in zip(flat._params or (), unit.spec.tensors):
                if spec.sharded is not tensor:
                    spec.sharded, unit.trained = tensor, ()
            if not handle._use_orig_params and unit.spec.tensors[0].sharded.requires_grad != flat.requires_grad:
                for spec in unit.spec.tensors:
                    spec.sharded.requires_grad_(flat.requires_grad)
            if self.model.follow_trained(unit):
                self._layout_grads(handle, unit)

    # Backward

    def _watch(self, state, output):
        """Learns when the backward pass comes to what this forward call has made."""
        unit = state.__dict__.get("_rc_unit")
        waiting = [state]
        hook = torch.utils.hooks.unserializable_hook(functools.partial(self._pre_backward, waiting))
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

    def _pre_backward(self, waiting, grad):
        """waiting: empty when the gradient of another output of the same forward call was here first."""
        while waiting:
            state = waiting.pop()
            handle = state._handle
            self.model.begin_backward()
            state.training_state = TrainingState.FORWARD_BACKWARD
            if handle:
                if not state._rc_unit.in_backward:
                    handle._training_state = HandleTrainingState.BACKWARD_PRE
                    handle.prepare_gradient_for_backward()
                self.model.pre_backward(state._rc_unit)
        return grad

    @torch.no_grad()
    def unit_reduce(self, model, unit):
        state = self.states[unit.index]
        handle, flat = state._handle, state._handle.flat_param
        if all(g.grad is None for g in unit.gathered):
            return
        if not state._sync_gradients:
            self._keep_unreduced(handle, unit)
            return
        if unit.unreduced is not None:
            unit.unreduced = flat.grad = None
            for param in flat._params or ():
                param.grad = None
        saved = getattr(flat, "_saved_grad_shard", None)
        add = saved is not None
        if (saved.data_ptr() if add else 0) != unit.grad.data_ptr() and self._grad_users(unit):  # the user still holds the last step's
            unit.grad = torch.empty_like(unit.grad)
        if add and saved.data_ptr() != unit.grad.data_ptr():  # the user's own
            unit.grad.untyped_storage().resize_(unit.grad_chunk * unit.spec.dtype.itemsize)
            unit.grad.copy_(saved)
        model.reduce(unit, handle._reduce_dtype, False, float(state._gradient_predivide_factor), float(state._gradient_postdivide_factor), False, add)
        flat._saved_grad_shard = unit.grad.detach()
        if unit.owners:
            views = unit.grad.split(unit.parts)
            for i, param, part in unit.owners:
                param.grad = views[part]
                flat._is_grad_none_mask[i] = False

    def _keep_unreduced(self, handle, unit):
        """no_sync(): the gathered parameters' gradients become views of one whole gradient, which users find where torch's is."""
        flat = handle.flat_param
        if unit.unreduced is None:
            unit.unreduced = torch.zeros(flat._unpadded_unsharded_size, dtype=unit.spec.param_dtype, device=flat.device)
        for tensor, spec in zip(unit.gathered, unit.spec.tensors):
            view = unit.unreduced[spec.offset : spec.offset + spec.shape.numel()].view(spec.shape)
            if tensor.grad is not None and tensor.grad.data_ptr() != view.data_ptr():
                tensor.grad = view.copy_(tensor.grad)
        if flat.grad is None or flat.grad.data_ptr() != unit.unreduced.data_ptr():
            flat.grad = torch.empty_like(flat)
            flat.grad.data = unit.unreduced  # .data: its size and type are not the shard's

    def _drop_unreduced(self, unit):
        unit.unreduced = None
        for tensor in unit.gathered:
            tensor.grad = None

    def unit_done(self, model, unit):
        model.leave(unit)
        self.states[unit.index]._handle._training_state = HandleTrainingState.IDLE

    @torch.no_grad()
    def backward_done(self, model):
        for state, unit in zip(self.states, model.units):
            handle, flat = state._handle, state._handle.flat_param
            model.leave(unit)
            if unit.unreduced is not None and handle._use_orig_params:
                handle._use_unsharded_grad_views()
            if flat.requires_grad and state._sync_gradients:
                flat._post_backward_called = hasattr(flat, "_saved_grad_shard")
                handle.prepare_gradient_for_optim()
                flat._post_backward_called = False
            handle._training_state = HandleTrainingState.IDLE
        for state in self.state._all_fsdp_states:
            state.training_state = TrainingState.IDLE

    def reset(self):
        """After an exception in forward: sharded everywhere, as before the step."""
        self.model.reset()
        for state in self.state._all_fsdp_states:
            state.training_state = TrainingState.IDLE
            if state._handle:
                state._handle._training_state = HandleTrainingState.IDLE

    def release(self):
        """Back to torch's run time: the shards into memory of torch's own."""
        for state, unit in zip(self.states, self.model.units):
            handle, flat = state._handle, state._handle.flat_param
            self.model.leave(unit)
            flat.data = flat._local_shard = flat.data.clone()
            if handle._use_orig_params:
                handle._use_sharded_views()
        for state in self.state._all_fsdp_states:
            state._rc_root = None


def _storage_users(tensor):
    return torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


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
    bound = inspect.signature(_stock["__init__"]).bind(self, *args, **kwargs)
    if bound.arguments.get("device_id") is None and not torch.cuda.is_available():
        bound.arguments["device_id"] = torch.device("cpu")
    _stock["__init__"](*bound.args, **bound.kwargs)


def _forward(self, *args, **kwargs):
    if self._is_root is None:
        runtime._lazy_init(self, self)
        if self._is_root:
            _take(self)
    elif self._is_root and "_rc_root" not in self.__dict__:
        _take(self)
    root = self.__dict__.get("_rc_root")
    if root is None:
        return _stock["forward"](self, *args, **kwargs)
    with torch.autograd.profiler.record_function("FullyShardedDataParallel.forward"):
        return root.forward(self, args, kwargs)


def _register_comm_hook(self, state, hook):
    _stock["register_comm_hook"](self, state, hook)
    root = self.__dict__.get("_rc_root")
    if root is not None:
        log.warning("FullyShardedDataParallel goes back to torch's own here: register_comm_hook is not served by raylet_c")
        root.release()


def install():
    """FullyShardedDataParallel's methods ask the engine first. The class stays the one that users have."""
    if _stock:
        return
    for name, ours in (("__init__", _init), ("forward", _forward), ("register_comm_hook", _register_comm_hook)):
        _stock[name] = getattr(FSDP, name)
        setattr(FSDP, name, functools.wraps(_stock[name])(ours))


def uninstall():
    for name, stock in _stock.items():
        setattr(FSDP, name, stock)
    _stock.clear()
