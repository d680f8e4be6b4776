"""torch's fully_shard on the engine.

Construction, DTensor parameters, state dicts and methods stay torch's. When a root first runs forward, its groups of parameters become units
of the engine, and FSDPState's hooks are answered here. What is not served (see `refusal`) keeps torch's run time, with one log line.
"""
import functools
import itertools
import logging
import operator
import sys
import weakref
from typing import Any, NamedTuple

import torch

from .levels import Levels
from .torch_names import Shard, _fsdp_param_group, _fsdp_state
from .model import TYPES, Model, PieceSpec, TensorSpec, UnitSpec, own_storage, storage_users
from .values import map_tensors, tensors_in

log = logging.getLogger("raylet_c.train")
ARRIVED, MISSING, HAD, HOOKED = 1, 2, 4, 16  # bits of Engine.look

State = _fsdp_state.FSDPState
TrainingState = _fsdp_state.TrainingState
Group = _fsdp_param_group.FSDPParamGroup
_stock = {}  # name -> torch's own method of FSDPState; kept after uninstall(): hooks of modules are bound to ours
roots = weakref.WeakSet()  # what is on the engine now


def groups_of(state):
    groups = getattr(state, "_fsdp_param_groups", None)  # torch 2.12 and later
    if groups is None:
        groups = [state._fsdp_param_group] if state._fsdp_param_group else []
    return groups


def modules_of(state):
    return state._modules if hasattr(state, "_modules") else (state._module,)  # torch 2.4: one


def refusal(root):
    """Why a root is left to torch: what is not served, by the name that the user gave it; None when it is served."""
    groups = [g for s in root._state_ctx.all_states for g in groups_of(s)]
    if not groups:
        return "no parameters"
    if not all(hasattr(s, "_rc_wrapped") for s in root._state_ctx.all_states):
        return "a model that was wrapped before install()"
    if any(len(groups_of(s)) > 1 for s in root._state_ctx.all_states):
        return "shard_placement_fn with meshes of its own"
    first = groups[0].mesh_info
    if first.mesh.device_type not in ("cpu", "cuda"):
        return "devices of type %s" % first.mesh.device_type
    for group in groups:
        mesh = group.mesh_info
        if not hasattr(mesh, "shard_process_group"):
            return "a mesh that only replicates"
        if mesh.mesh != first.mesh:
            return "different meshes in one model"
        if _offloads(group) != _offloads(groups[0]):
            return "offload_policy=CPUOffloadPolicy of some groups only"
        reason = _switched(group)
        if reason:
            return reason
        if len({(p.orig_dtype, p.param_dtype) for p in group.fsdp_params}) > 1:
            return "parameters of several types in one group (%s)" % group._module_fqn
        for param in group.fsdp_params:
            if param.is_dtensor:
                return "parameters that are DTensors already (%s)" % param._param_fqn
            placement = getattr(param, "fsdp_placement", Shard(0))  # torch 2.6 and later
            if not isinstance(placement, Shard) or placement.dim != 0:
                return "shard_placement_fn with %s (%s)" % (placement, param._param_fqn)
            if param.orig_dtype not in TYPES:
                return "%s parameters (%s)" % (param.orig_dtype, param._param_fqn)
            if hasattr(param._sharded_local_tensor, "fsdp_pre_all_gather"):
                return "tensor subclasses with fsdp_pre_all_gather (%s)" % param._param_fqn
    return None


def _offloads(group):
    return any(p.offload_to_cpu for p in group.fsdp_params)


def _switched(group):
    """What methods of FSDPModule may have asked for since, and is not served."""
    if group.post_forward_mesh_info is not None and group._use_post_forward_mesh:
        return "reshard_after_forward=%d (an int)" % group.post_forward_mesh_info.shard_mesh_size
    if getattr(group, "_all_reduce_hook", None) is not None:
        return "set_all_reduce_hook"
    for name, default in (("_all_gather_comm", "DefaultAllGather"), ("_reduce_scatter_comm", "DefaultReduceScatter")):
        if type(getattr(group, name, None)).__name__ not in (default, "NoneType"):
            return "a custom communication object (%s)" % type(getattr(group, name)).__name__
    if group._is_hsdp and group.reduce_grads and not group.all_reduce_grads:
        return "set_requires_all_reduce(False) on a hybrid mesh"
    return None


class Home(NamedTuple):
    """Where a parameter lives: the piece of a unit."""

    root: Any
    group: Any
    unit: Any
    piece: int
    param: Any  # torch's FSDPParam


def homes():
    """By the id of the sharded parameter."""
    return {id(p.sharded_param): Home(root, group, group._rc_unit, i, p) for root in roots for group in root.groups
            for i, p in enumerate(group._rc_params)}


def dtensor(param, local):
    """A DTensor with the parameter's placement. Its outside has no storage offset: copy.deepcopy takes one for memory of its own."""
    made = param.to_sharded_dtensor(local.as_strided(local.shape, local.stride(), 0))
    made._local_tensor = local
    return made


class Root:
    """One root's model on the engine, and the rules of FSDP2 for it."""

    def __init__(self, state):
        self.ctx = state._state_ctx
        self.states = list(self.ctx.all_states)
        self.groups = [g for s in self.states for g in groups_of(s)]
        mesh = self.groups[0].mesh_info
        self.replicas = getattr(mesh, "replicate_mesh_size", 1)
        device = torch.device("cuda", torch.cuda.current_device()) if mesh.mesh.device_type == "cuda" else torch.device("cpu")
        levels = Levels(mesh.shard_process_group, mesh.replicate_process_group if self.replicas > 1 else None, device)
        offload = device.type == "cuda" and _offloads(self.groups[0])
        if offload and levels.way.levels > 1:
            raise NotImplementedError("offload_policy=CPUOffloadPolicy with two levels is not served by raylet_c")
        for group in self.groups:  # unsharded by hand before the first forward pass
            group.wait_for_unshard()
            group._to_sharded()
        specs = [self._spec(s, g) for s in self.states for g in groups_of(s)]
        self.model = Model(device, levels, specs, self, offload)
        for group, unit in zip(self.groups, self.model.units):
            group._rc_unit, group._rc_root = unit, self
            group.__class__ = _group_class()
            unit.grad_users = functools.partial(self._grad_users, group, unit)
            self._adopt(group, unit)
            self._make_grads(group, unit)
        self._remember_homes()
        if offload:  # what torch had pinned is in its cache now
            getattr(torch._C, "_host_emptyCache", lambda: None)()
        for state in self.states:
            state._rc_root = self
            state._rc_units = [g._rc_unit for g in groups_of(state)]
        roots.add(self)

    def _spec(self, state, group):
        pieces, tensors = [], []
        # Neighbours are stepped together: what is frozen lies apart, and vectors, which often have other optimizer settings.
        params = sorted(group.fsdp_params, key=lambda p: (not p.sharded_param.requires_grad, len(p._orig_size) < 2))
        group._rc_params = params
        for i, p in enumerate(params):
            pieces.append(PieceSpec(p.padded_sharded_param_size.numel(), p._orig_size.numel()))
            info = p._module_info
            places = tuple((m._parameters, n) for m, n in zip([info.module] + info.shared_modules, [info.param_name] + info.shared_param_names))
            tensors.append(TensorSpec(i, 0, p._orig_size, p.sharded_param, places, p.sharded_param.requires_grad))
        first = params[0]
        param_dtype = first.param_dtype or first.orig_dtype
        reduce_dtype = group._reduce_dtype or param_dtype
        inner = any(groups_of(s) and s is not state and any(m in o.modules() for m in modules_of(s) for o in modules_of(state))
                    for s in self.states)
        return UnitSpec(group._module_fqn or "the root", pieces, tensors, first.orig_dtype, param_dtype, reduce_dtype,
                        alone=inner or state._is_root or len(modules_of(state)) > 1 or self._stays(group))

    @staticmethod
    def _stays(group):
        return not group._reshard_after_forward or not group.reshard_after_backward

    @torch.no_grad()
    def _adopt(self, group, unit):
        """The shards' memory becomes the engine's; the DTensor objects, which optimizers hold, stay."""
        self.model.changed()
        for i, p in enumerate(group._rc_params):
            if p._sharded_param_data.dtype != unit.spec.dtype:
                raise RuntimeError("%s was of %s at the first forward pass and is of %s now: change the type before it, or call fully_shard "
                                   "again" % (p._param_fqn, unit.spec.dtype, p._sharded_param_data.dtype))
            flat = own_storage(self.model.piece_of(unit, i))
            flat.copy_(p._sharded_param_data)
            p._sharded_param_data = flat
            local = flat.view(p.padded_sharded_param_size).narrow(0, 0, p.sharded_size[0] if p.sharded_size.numel() else 0)
            p.sharded_param._local_tensor = local.view(p.sharded_size) if local.numel() else local.new_empty(p.sharded_size)
            p._rc_home = p._sharded_param_data.data_ptr(), p.sharded_param

    def _make_grads(self, group, unit):
        """The gradients that parameters get each step: made once, the storage under them comes and goes."""
        unit.grads = []
        for i, p in enumerate(group._rc_params):
            if unit.grad_offsets[i] < 0:
                unit.grads.append(None)
                continue
            start = unit.grad_offsets[i]
            local = unit.grad[start : start + p.sharded_size.numel()].view(p.sharded_size)
            unit.grads.append(dtensor(p, local))
        self.model.engine.own_gradients(unit.index, unit.grads)
        unit.counted = [t for g in unit.grads if g is not None for t in (g, g._local_tensor)]
        unit.own_references, unit.own_users = _references(unit), storage_users(unit.grad)

    def _grads_kept(self, group, unit):
        """Whether somebody has gradients that are no parameter's any more: torch's stay as they are, so ours must not be used again."""
        if storage_users(unit.grad) > unit.own_users:
            return True
        references = _references(unit)
        if references == unit.own_references:
            return False
        more = iter([have > base for have, base in zip(references, unit.own_references)])
        held = [(next(more) | next(more)) if own is not None else False for own in unit.grads]
        return any(on and p.sharded_param.grad is not own for on, p, own in zip(held, group._rc_params, unit.grads))

    def _renew_grads(self, group, unit):
        unit.grad = self.model.new_gradient(unit)
        self._make_grads(group, unit)

    def _grad_users(self, group, unit):
        if self.model.engine.had(unit.index):
            return True
        if self._grads_kept(group, unit):
            self._renew_grads(group, unit)
        return False

    # What a step asks for

    def follow_changes(self):
        """What was switched, and parameters that were frozen, thawed, replaced or moved since the last step. False: torch's own goes on."""
        for reason in filter(None, map(_switched, self.groups)):
            log.warning("fully_shard goes back to torch's own here: %s is not served by raylet_c", reason)
            self.release()
            return False
        same = not self.model.engine.thawed() and all(map(operator.is_, self._homes_now(), self._homes))
        for group in self.groups:
            unit = group._rc_unit
            if not unit.spec.alone and self._stays(group):
                self.model.leave(unit)
                self.model.move_out(unit)
            unit.reduce_unused = getattr(group, "reduce_scatter_unused_params", False)
            if same:
                continue
            for p in group._rc_params:
                if p._rc_home[1] is not p.sharded_param or p._sharded_param_data.data_ptr() != p._rc_home[0]:
                    for q, t in zip(group._rc_params, unit.spec.tensors):
                        t.sharded = q.sharded_param
                    self._adopt(group, unit)
                    unit.trained = ()
                    break
            if self.model.follow_trained(unit):
                self._make_grads(group, unit)
        if not same:
            self._remember_homes()
        return True

    def _homes_now(self):
        """Each parameter's object and its memory, in one row: compared in every step."""
        return itertools.chain.from_iterable(map(operator.attrgetter("sharded_param", "_sharded_param_data"), self._params))

    def _remember_homes(self):
        self._params = [p for g in self.groups for p in g._rc_params]
        self._homes = list(self._homes_now())

    def release(self):
        """Back to torch's run time, between steps."""
        for group in self.groups:
            unit = group._rc_unit
            self.model.leave(unit)
            sums = iter(getattr(unit, "sums", None) or ())
            for p, tensor, trained in zip(group._rc_params, unit.gathered, unit.trained):
                summed = next(sums, None) if trained else None
                if tensor.grad is not None or summed is not None:  # of passes without reduction
                    p.unsharded_accumulated_grad = tensor.grad if summed is None else summed
            for hook in unit.hooks:
                hook.remove()
            group.__class__ = Group
            del group._rc_unit, group._rc_root
        for state in self.states:
            del state._rc_root, state._rc_units
        roots.discard(self)

    def rule(self, group, unit):
        """(type, mean, before, after) as torch's fully_shard has them for its mode."""
        ranks = self.model.ranks * self.replicas
        dtype = group._reduce_dtype or unit.spec.param_dtype
        factor = getattr(group, "gradient_divide_factor", None)
        risky = dtype not in (torch.float32, torch.bfloat16)
        force_sum = getattr(group, "force_sum_reduction_for_comms", False)
        if not risky and not force_sum:
            if factor is None or factor == self.model.ranks and self.replicas == 1:
                return dtype, ranks > 1, 1.0, 1.0
            return dtype, False, float(factor), 1.0
        factor = float(factor or ranks)
        before = 1.0
        if risky:
            while factor % before == 0 and factor / before > before:
                before *= 2
        return dtype, False, before, factor / before

    def unit_reduce(self, model, unit):
        group = self._group(unit)
        params = group._rc_params
        grads = self._sum_unreduced(group, unit)
        if not group.reduce_grads:
            return
        seen = model.engine.look(unit.index)
        if grads is None and not seen & ARRIVED and not unit.reduce_unused:
            return
        if self.replicas > 1 and not group.all_reduce_grads:
            raise NotImplementedError("set_requires_all_reduce(False) between forward and backward is not served on a hybrid mesh: call it "
                                      "before forward, or set RAYLET_C_FSDP=0")
        complete = unit.reduce_unused or (not seen & MISSING if grads is None else all(g is not None for g in grads))
        missing = () if complete else self._missing(unit, grads)
        if unit.grad.untyped_storage().size() and self._grads_kept(group, unit):
            self._renew_grads(group, unit)
        if seen & HAD:
            self._fill_grads(params, unit)
        model.reduce(unit, *self.rule(group, unit), self.replicas > 1, bool(seen & HAD), grads)
        if complete:
            model.engine.give(unit.index)
        else:
            for i, (p, own) in enumerate(zip(params, unit.grads)):
                if own is not None and (i not in missing or p.sharded_param.grad is not None):
                    p.sharded_param.grad = own
        if seen & HOOKED:
            self._run_user_hooks([p for i, p in enumerate(params) if unit.trained[i] and i not in missing])

    def _missing(self, unit, grads):
        """Indices of the trained parameters that got no gradient."""
        trained = [i for i, on in enumerate(unit.trained) if on]
        return [i for at, i in enumerate(trained) if unit.gathered[i].grad is None and (grads is None or grads[at] is None)]

    @torch.no_grad()
    def _fill_grads(self, params, unit):
        """What the reduction adds to: zeros where there is no gradient yet, the user's own where he has set one."""
        if self.model.take_gradient(unit):
            unit.grad.zero_()
        for p, own in zip(params, unit.grads):
            grad = p.sharded_param.grad
            if own is not None and grad is not own:
                own._local_tensor.zero_() if grad is None else own._local_tensor.copy_(grad._local_tensor)

    def _run_user_hooks(self, params):
        for p in params:
            hooks = getattr(p.sharded_param, "_post_accumulate_grad_hooks", None)
            if hooks:
                self.model.finish()
                for hook in hooks.values():
                    hook(p.sharded_param)

    def _sum_unreduced(self, group, unit):
        """Gradients of passes without reduction, in the message's type where it differs. None: they are in `.grad` alone."""
        dtype = group._reduce_dtype
        if dtype is None or dtype == unit.spec.param_dtype or (group.reduce_grads and not getattr(unit, "sums", None)):
            return None
        sums = getattr(unit, "sums", None) or [None] * sum(unit.trained)
        at = 0
        for tensor, on in zip(unit.gathered, unit.trained):
            if not on:
                continue
            if tensor.grad is not None:
                grad, tensor.grad = tensor.grad, None
                sums[at] = grad.to(dtype) if sums[at] is None else sums[at].add_(grad)
            at += 1
        unit.sums = None if group.reduce_grads else sums
        if group.reduce_grads:
            return sums
        return None

    def unit_done(self, model, unit):
        group = self._group(unit)
        if group.reshard_after_backward or not unit.spec.alone:
            model.leave(unit)
            group._sharded_state = _sharded()
        group._training_state = TrainingState.IDLE

    def backward_done(self, model):
        for unit in model.units:
            group = self._group(unit)
            if unit.entered and group.reshard_after_backward:
                model.leave(unit)
                group._sharded_state = _sharded()
        for state in self.states:
            state._training_state = TrainingState.IDLE
            getattr(state, "_modules_to_run_forward", set()).clear()
        self.ctx.iter_forward_root = None

    def _group(self, unit):
        return self.groups[unit.index]


def _references(unit):
    """Counted again and again in this one way, so that only differences matter."""
    return list(map(sys.getrefcount, unit.counted))


def _sharded():
    return _fsdp_param_group.ShardedState.SHARDED


def _unsharded():
    return _fsdp_param_group.ShardedState.UNSHARDED


@functools.lru_cache(None)
def _group_class():
    class RayletCParamGroup(Group):
        """A group whose parameters the engine gathers: what FSDPModule's methods and state dict hooks call."""

        def unshard(self, async_op=False):
            if self._training_state == TrainingState.IDLE and self._rc_root.ctx.iter_forward_root is None and not self._rc_unit.entered:
                self._rc_root.model.begin()  # by hand, outside of a step: shards may have changed

        def wait_for_unshard(self):
            self._rc_root.model.enter(self._rc_unit, False, False)
            self._sharded_state = _unsharded()

        def reshard(self):
            self._to_sharded()

        def _to_sharded(self):
            self._rc_root.model.leave(self._rc_unit)
            self._sharded_state = _sharded()

        def _reset_iter_state(self):
            self._rc_root.model.reset()
            self._rc_unit.sums = None
            self._sharded_state = _sharded()
            self._training_state = TrainingState.IDLE

    return RayletCParamGroup


# FSDPState's hooks


def _init(state, *args, **kwargs):
    state._rc_wrapped = True  # its hooks are ours
    _stock["init"](state, *args, **kwargs)


def _lazy_init(state):
    if state._is_root is not None:
        return
    gpu_only = state._device.type == "cpu" and hasattr(state._comm_ctx, "init")  # torch 2.4: streams of a GPU
    if gpu_only:
        state._comm_ctx.init = lambda: None
    _stock["_lazy_init"](state)
    if not state._is_root:
        return
    reason = refusal(state)
    if reason:
        reason += " is not served by raylet_c"
    else:
        try:
            state._rc_root = Root(state)
        except NotImplementedError as error:
            reason = str(error)
    if reason:
        log.warning("fully_shard stays torch's own here: %s", reason)
        if gpu_only:
            del state._comm_ctx.init
            state._comm_ctx.init()


def _pre_forward(state, module, args, kwargs):
    if state._is_root is None:
        state._lazy_init()
    root = getattr(state, "_rc_root", None)
    if root is None:
        return _stock["_pre_forward"](state, module, args, kwargs)
    if root.ctx.iter_forward_root is None and state._training_state == TrainingState.IDLE and not root.follow_changes():
        return _stock["_pre_forward"](state, module, args, kwargs)
    model = root.model
    if state._training_state == TrainingState.PRE_BACKWARD:  # recomputation of an activation checkpoint
        for unit in state._rc_units:
            model.enter(unit, True, False)
        return state._cast_forward_inputs(args, kwargs) if hasattr(state, "_cast_forward_inputs") else (args, kwargs)
    first = state._training_state != TrainingState.FORWARD
    state._training_state = TrainingState.FORWARD
    if first and root.ctx.iter_forward_root is None:
        root.ctx.iter_forward_root = state
        event = getattr(root.ctx, "post_optim_event", None)
        if event is not None:
            torch.cuda.current_stream().wait_event(event)
            root.ctx.post_optim_event = None
        model.begin()
        if model.cuda and (args or kwargs):
            args, kwargs = _to_device(model.device, args, kwargs)
    policy = state._mp_policy
    if policy.cast_forward_inputs and policy.param_dtype and _other_type(policy.param_dtype, (args, kwargs)):
        args, kwargs = _cast(policy.param_dtype, args), _cast(policy.param_dtype, kwargs)
    for unit in state._rc_units:
        model.enter(unit, False)
    return args, kwargs


def _post_forward(state, module, input, output):
    root = getattr(state, "_rc_root", None)
    if root is None:
        return _stock["_post_forward"](state, module, input, output)
    policy = state._mp_policy
    if state._training_state != TrainingState.PRE_BACKWARD:
        model = root.model
        if torch._C._current_graph_task_id() == -1:  # not inside a backward pass
            for group, unit in zip(groups_of(state), state._rc_units):
                if group._reshard_after_forward or not unit.spec.alone:
                    model.leave(unit)
        if torch.is_grad_enabled():
            hook = functools.partial(_pre_backward, state, [])
            watched = False
            for tensor in tensors_in(output):
                if tensor.requires_grad:
                    tensor.register_hook(hook)
                    watched = True
            for unit in state._rc_units:
                unit.uses += watched
        state._training_state = TrainingState.IDLE
        if root.ctx.iter_forward_root is state:
            root.ctx.iter_forward_root = None
    return _cast(policy.output_dtype, output) if policy.output_dtype is not None else output


def _pre_backward(state, seen, grad):
    """seen: the backward pass that was here last, with the gradient of an output of the same forward call."""
    model = state._rc_root.model
    first = model.first_of_pass(seen)
    state._training_state = TrainingState.PRE_BACKWARD
    model.begin_backward()
    for unit in state._rc_units if first else ():
        model.pre_backward(unit)
    return grad


def _other_type(dtype, value):
    """Whether there are floating-point tensors of another type in value, or containers that only map_tensors looks into."""
    if isinstance(value, torch.Tensor):
        return value.dtype is not dtype and value.is_floating_point()
    if isinstance(value, (tuple, list)):
        return any([_other_type(dtype, v) for v in value])
    if isinstance(value, dict):
        return any([_other_type(dtype, v) for v in value.values()])
    return hasattr(value, "__dataclass_fields__")


def _cast(dtype, value):
    return map_tensors(lambda t: t.to(dtype) if t.is_floating_point() and t.dtype != dtype else t, value)


def _to_device(device, args, kwargs):
    if all(t.device == device for t in tensors_in((args, kwargs))):
        return args, kwargs
    from torch.distributed.utils import _to_kwargs

    args, kwargs = _to_kwargs(args, kwargs, device, False)
    return args[0], kwargs[0]


HOOKS = (("init", _init), ("_lazy_init", _lazy_init), ("_pre_forward", _pre_forward), ("_post_forward", _post_forward))


def install():
    """FSDPState's hooks ask the engine first. Models that were wrapped before keep torch's run time."""
    if State.init is _init:
        return
    for name, ours in HOOKS:
        _stock[name] = getattr(State, name)
        setattr(State, name, ours)


def uninstall():
    """Between steps. Models that are on the engine go on with torch's run time."""
    if State.init is _init:
        for name, _ in HOOKS:
            setattr(State, name, _stock[name])
    for root in list(roots):
        root.release()
