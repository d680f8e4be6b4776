"""What the faces use of torch that is private or was named differently in some release. Served are torch 2.4 and later.

`check()` says before anything is changed when a release has none of a private name: then torch's own FSDP stays in place, whole. It
looks at the names in the code of torch's own modules, so attributes that constructors set are found too.
"""
import types

import torch

OLDEST = (2, 4)

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
except ImportError:  # torch 2.4
    from torch.distributed._tensor import DTensor, Replicate, Shard
try:
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group, _fsdp_state
except ImportError:  # torch 2.4 and 2.5
    from torch.distributed._composable.fsdp import _fsdp_param, _fsdp_param_group, _fsdp_state

from torch.distributed.fsdp import _common_utils, _flat_param, _init_utils, _runtime_utils, fully_sharded_data_parallel

__all__ = ["DTensor", "Replicate", "Shard", "_fsdp_param_group", "_fsdp_state", "check"]

FSDP2 = (
    "init _device _is_root _lazy_init _mp_policy _post_forward _pre_forward _state_ctx _training_state all_states iter_forward_root "
    "_is_hsdp _module_fqn _reduce_dtype _reshard_after_forward _sharded_state _to_sharded _use_post_forward_mesh all_reduce_grads "
    "fsdp_params mesh_info post_forward_mesh_info reduce_grads reshard reshard_after_backward shard_process_group unshard "
    "wait_for_unshard _module_info _orig_size _param_fqn _sharded_local_tensor _sharded_param_data _spmd_mesh is_dtensor offload_to_cpu "
    "orig_dtype padded_sharded_param_size param_dtype sharded_param sharded_size to_sharded_dtensor unsharded_accumulated_grad "
).split()
FSDP1 = (
    "_all_fsdp_states _comm_hook _fsdp_extension _gradient_postdivide_factor _gradient_predivide_factor _handle _inter_node_pg _is_root "
    "_lazy_init _root_pre_forward _sync_gradients compute_device cpu_offload mixed_precision process_group sharding_strategy "
    "training_state world_size _fqns _is_grad_none_mask _is_padding_mask _local_shard _numels_with_padding _param_extensions "
    "_param_infos _params _post_backward_called _saved_grad_shard _shapes _shard_param_infos _shared_param_infos _sharded_size "
    "_unpadded_unsharded_size _fwd_bwd_param_dtype _get_unflat_views _has_optim_in_backward _keep_low_precision_grads _reduce_dtype "
    "_training_state _use_orig_params _use_sharded_grad_views _use_sharded_views _writeback_orig_params _writeback_tensor flat_param "
    "is_sharded prepare_gradient_for_backward prepare_gradient_for_optim reshard_grad sharded_grad to_cpu unshard_grad "
    "_check_module_states_for_sync_module_states "
).split()


def _names(*modules):
    """All names that functions and classes of the modules use or define."""
    found, seen = set(), set()
    homes = {m.__name__ for m in modules}
    queue = [value for m in modules for value in vars(m).values() if getattr(value, "__module__", None) == m.__name__]
    while queue:
        value = queue.pop()
        code = getattr(getattr(value, "__wrapped__", value), "__code__", value)
        name = getattr(value, "__name__", None)
        if isinstance(code, types.CodeType):
            found.update(code.co_names, (name,))
            queue += [c for c in code.co_consts if isinstance(c, types.CodeType)]
        elif isinstance(value, type) and value.__module__ in homes and value not in seen:
            seen.add(value)
            found.update(getattr(value, "__annotations__", ()), (name,))
            queue += [getattr(v, "fget", v) for v in vars(value).values()]
    return found


def check():
    """RuntimeError when this torch has not all that the faces use."""
    if torch.__version__ < OLDEST:
        raise RuntimeError("torch %s is not served by raylet_c: %d.%d and later are" % (torch.__version__, *OLDEST))
    here = _names(_fsdp_state, _fsdp_param_group, _fsdp_param)
    absent = [name for name in FSDP2 if name not in here]
    here = _names(_common_utils, _flat_param, _init_utils, _runtime_utils, fully_sharded_data_parallel)
    absent += [name for name in FSDP1 if name not in here]
    if absent:
        raise RuntimeError("torch %s is not served by raylet_c: it has no %s" % (torch.__version__, ", ".join(absent)))
