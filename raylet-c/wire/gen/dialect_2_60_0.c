/* Numbers of Ray 2.60.0. Made by bazel/dialect.py from that release: do not edit. */
#include "raylet-c/wire/table.h"

/* { number on the wire, place in our message, place of the sub-message in the list below } */
static const rc__field f0[] = { /* MapStringDouble */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, RC__NO_SUB }, /* value */
};
static const rc__field f1[] = { /* MapStringString */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, RC__NO_SUB }, /* value */
};
static const rc__field f2[] = { /* MapStringResourceAllocations */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, 57 }, /* value */
};
static const rc__field f3[] = { /* MapStringBytes */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, RC__NO_SUB }, /* value */
};
static const rc__field f4[] = { /* LabelSelectorConstraint */
	{ 1, 0, RC__NO_SUB }, /* label_key */
	{ 2, 1, RC__NO_SUB }, /* operator */
	{ 3, 2, RC__NO_SUB }, /* label_values */
};
static const rc__field f5[] = { /* LabelSelector */
	{ 1, 0, 4 }, /* label_constraints */
};
static const rc__field f6[] = { /* ResourceDemand */
	{ 1, 0, 0 }, /* shape */
	{ 2, 1, RC__NO_SUB }, /* num_ready_requests_queued */
	{ 3, 2, RC__NO_SUB }, /* num_infeasible_requests_queued */
	{ 4, 3, RC__NO_SUB }, /* backlog_size */
	{ 5, 4, 5 }, /* label_selectors */
};
static const rc__field f7[] = { /* ResourceLoad */
	{ 1, 0, 6 }, /* resource_demands */
};
static const rc__field f8[] = { /* ResourcesData */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, 0 }, /* resources_available */
	{ 4, 2, 0 }, /* resources_total */
	{ 5, 3, 0 }, /* resource_load */
	{ 7, 4, 7 }, /* resource_load_by_shape */
	{ 9, 5, RC__NO_SUB }, /* node_manager_address */
	{ 10, 6, RC__NO_SUB }, /* object_pulls_queued */
	{ 15, 7, RC__NO_SUB }, /* idle_duration_ms */
	{ 16, 8, RC__NO_SUB }, /* is_draining */
	{ 18, 9, RC__NO_SUB }, /* draining_deadline_timestamp_ms */
	{ 19, 10, 1 }, /* labels */
};
static const rc__field f9[] = { /* GetResourceLoadReply */
	{ 1, 0, 8 }, /* resources */
};
static const rc__field f10[] = { /* Address */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* ip_address */
	{ 3, 2, RC__NO_SUB }, /* port */
	{ 4, 3, RC__NO_SUB }, /* worker_id */
};
static const rc__field f12[] = { /* PlacementGroupSchedulingStrategy */
	{ 1, 0, RC__NO_SUB }, /* placement_group_id */
	{ 2, 1, RC__NO_SUB }, /* placement_group_bundle_index */
	{ 3, 2, RC__NO_SUB }, /* placement_group_capture_child_tasks */
};
static const rc__field f14[] = { /* NodeAffinitySchedulingStrategy */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* soft */
	{ 3, 2, RC__NO_SUB }, /* spill_on_unavailable */
	{ 4, 3, RC__NO_SUB }, /* fail_on_unavailable */
};
static const rc__field f15[] = { /* LabelIn */
	{ 1, 0, RC__NO_SUB }, /* values */
};
static const rc__field f16[] = { /* LabelNotIn */
	{ 1, 0, RC__NO_SUB }, /* values */
};
static const rc__field f19[] = { /* LabelOperator */
	{ 1, 0, 15 }, /* label_in */
	{ 2, 1, 16 }, /* label_not_in */
	{ 3, 2, 17 }, /* label_exists */
	{ 4, 3, 18 }, /* label_does_not_exist */
};
static const rc__field f20[] = { /* LabelMatchExpression */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, 19 }, /* operator */
};
static const rc__field f21[] = { /* LabelMatchExpressions */
	{ 1, 0, 20 }, /* expressions */
};
static const rc__field f22[] = { /* NodeLabelSchedulingStrategy */
	{ 1, 0, 21 }, /* hard */
	{ 2, 1, 21 }, /* soft */
};
static const rc__field f23[] = { /* SchedulingStrategy */
	{ 1, 0, 11 }, /* default_scheduling_strategy */
	{ 2, 1, 12 }, /* placement_group_scheduling_strategy */
	{ 3, 2, 13 }, /* spread_scheduling_strategy */
	{ 4, 3, 14 }, /* node_affinity_scheduling_strategy */
	{ 5, 4, 22 }, /* node_label_scheduling_strategy */
};
static const rc__field f24[] = { /* RuntimeEnvUris */
	{ 1, 0, RC__NO_SUB }, /* working_dir_uri */
	{ 2, 1, RC__NO_SUB }, /* py_modules_uris */
};
static const rc__field f25[] = { /* RuntimeEnvConfig */
	{ 1, 0, RC__NO_SUB }, /* setup_timeout_seconds */
	{ 2, 1, RC__NO_SUB }, /* eager_install */
	{ 3, 2, RC__NO_SUB }, /* log_files */
};
static const rc__field f26[] = { /* RuntimeEnvInfo */
	{ 1, 0, RC__NO_SUB }, /* serialized_runtime_env */
	{ 2, 1, 24 }, /* uris */
	{ 3, 2, 25 }, /* runtime_env_config */
};
static const rc__field f27[] = { /* ObjectReference */
	{ 1, 0, RC__NO_SUB }, /* object_id */
	{ 2, 1, 10 }, /* owner_address */
	{ 3, 2, RC__NO_SUB }, /* call_site */
	{ 4, 3, RC__NO_SUB }, /* tensor_transport */
};
static const rc__field f28[] = { /* TaskArg */
	{ 1, 0, 27 }, /* object_ref */
};
static const rc__field f29[] = { /* FallbackOption */
	{ 1, 0, 5 }, /* label_selector */
};
static const rc__field f30[] = { /* FallbackStrategy */
	{ 1, 0, 29 }, /* options */
};
static const rc__field f31[] = { /* LeaseSpec */
	{ 1, 0, RC__NO_SUB }, /* lease_id */
	{ 2, 1, RC__NO_SUB }, /* job_id */
	{ 3, 2, 10 }, /* caller_address */
	{ 4, 3, RC__NO_SUB }, /* type */
	{ 5, 4, RC__NO_SUB }, /* actor_id */
	{ 6, 5, RC__NO_SUB }, /* is_detached_actor */
	{ 7, 6, RC__NO_SUB }, /* root_detached_actor_id */
	{ 8, 7, RC__NO_SUB }, /* max_actor_restarts */
	{ 9, 8, 0 }, /* required_resources */
	{ 10, 9, 0 }, /* required_placement_resources */
	{ 11, 10, 23 }, /* scheduling_strategy */
	{ 12, 11, 5 }, /* label_selector */
	{ 13, 12, RC__NO_SUB }, /* depth */
	{ 14, 13, 26 }, /* runtime_env_info */
	{ 15, 14, 27 }, /* dependencies */
	{ 16, 15, RC__NO_SUB }, /* parent_task_id */
	{ 17, 16, RC__NO_SUB }, /* language */
	{ 18, 17, RC__NO_SUB }, /* function_descriptor */
	{ 19, 18, RC__NO_SUB }, /* dynamic_worker_options */
	{ 20, 19, RC__NO_SUB }, /* max_retries */
	{ 21, 20, RC__NO_SUB }, /* attempt_number */
	{ 22, 21, RC__NO_SUB }, /* task_name */
	{ 23, 22, 30 }, /* fallback_strategy */
};
static const rc__field f32[] = { /* ActorCreationTaskSpec */
	{ 1, 0, RC__NO_SUB }, /* actor_id */
	{ 2, 1, RC__NO_SUB }, /* max_actor_restarts */
	{ 4, 2, RC__NO_SUB }, /* dynamic_worker_options */
	{ 5, 3, RC__NO_SUB }, /* max_concurrency */
	{ 6, 4, RC__NO_SUB }, /* is_detached */
	{ 7, 5, RC__NO_SUB }, /* name */
	{ 8, 6, RC__NO_SUB }, /* ray_namespace */
};
static const rc__field f33[] = { /* JobConfig */
	{ 2, 0, RC__NO_SUB }, /* jvm_options */
	{ 3, 1, RC__NO_SUB }, /* code_search_path */
	{ 4, 2, 26 }, /* runtime_env_info */
	{ 5, 3, RC__NO_SUB }, /* ray_namespace */
	{ 6, 4, 1 }, /* metadata */
	{ 7, 5, RC__NO_SUB }, /* default_actor_lifetime */
	{ 8, 6, RC__NO_SUB }, /* py_driver_sys_path */
	{ 9, 7, RC__NO_SUB }, /* serialized_py_logging_config */
	{ 10, 8, RC__NO_SUB }, /* disable_job_level_lineage_reconstruction */
};
static const rc__field f34[] = { /* RequestWorkerLeaseRequest */
	{ 1, 0, 31 }, /* lease_spec */
	{ 2, 1, RC__NO_SUB }, /* backlog_size */
	{ 3, 2, RC__NO_SUB }, /* grant_or_reject */
	{ 4, 3, RC__NO_SUB }, /* is_selected_based_on_locality */
};
static const rc__field f35[] = { /* ResourceId */
	{ 1, 0, RC__NO_SUB }, /* index */
	{ 2, 1, RC__NO_SUB }, /* quantity */
};
static const rc__field f36[] = { /* ResourceMapEntry */
	{ 1, 0, RC__NO_SUB }, /* name */
	{ 2, 1, 35 }, /* resource_ids */
};
static const rc__field f37[] = { /* RequestWorkerLeaseReply */
	{ 1, 0, 10 }, /* worker_address */
	{ 2, 1, 10 }, /* retry_at_raylet_address */
	{ 3, 2, 36 }, /* resource_mapping */
	{ 4, 3, RC__NO_SUB }, /* canceled */
	{ 6, 4, RC__NO_SUB }, /* worker_pid */
	{ 7, 5, RC__NO_SUB }, /* rejected */
	{ 8, 6, 8 }, /* resources_data */
	{ 9, 7, RC__NO_SUB }, /* failure_type */
	{ 10, 8, RC__NO_SUB }, /* scheduling_failure_message */
};
static const rc__field f38[] = { /* WorkerBacklogReport */
	{ 1, 0, 31 }, /* lease_spec */
	{ 2, 1, RC__NO_SUB }, /* backlog_size */
};
static const rc__field f39[] = { /* ReportWorkerBacklogRequest */
	{ 1, 0, RC__NO_SUB }, /* worker_id */
	{ 2, 1, 38 }, /* backlog_reports */
};
static const rc__field f41[] = { /* ReleaseUnusedActorWorkersRequest */
	{ 1, 0, RC__NO_SUB }, /* worker_ids_in_use */
};
static const rc__field f42[] = { /* ShutdownRayletRequest */
	{ 1, 0, RC__NO_SUB }, /* graceful */
};
static const rc__field f43[] = { /* DrainRayletRequest */
	{ 1, 0, RC__NO_SUB }, /* reason */
	{ 2, 1, RC__NO_SUB }, /* reason_message */
	{ 3, 2, RC__NO_SUB }, /* deadline_timestamp_ms */
};
static const rc__field f44[] = { /* DrainRayletReply */
	{ 1, 0, RC__NO_SUB }, /* is_accepted */
	{ 2, 1, RC__NO_SUB }, /* rejection_reason_message */
};
static const rc__field f45[] = { /* Bundle_BundleIdentifier */
	{ 1, 0, RC__NO_SUB }, /* placement_group_id */
	{ 2, 1, RC__NO_SUB }, /* bundle_index */
};
static const rc__field f46[] = { /* Bundle */
	{ 1, 0, 45 }, /* bundle_id */
	{ 2, 1, 0 }, /* unit_resources */
	{ 3, 2, RC__NO_SUB }, /* node_id */
	{ 4, 3, 1 }, /* label_selector */
};
static const rc__field f47[] = { /* PrepareBundleResourcesRequest */
	{ 1, 0, 46 }, /* bundle_specs */
};
static const rc__field f48[] = { /* PrepareBundleResourcesReply */
	{ 1, 0, RC__NO_SUB }, /* success */
};
static const rc__field f49[] = { /* CommitBundleResourcesRequest */
	{ 1, 0, 46 }, /* bundle_specs */
};
static const rc__field f51[] = { /* CancelWorkerLeaseRequest */
	{ 1, 0, RC__NO_SUB }, /* lease_id */
};
static const rc__field f53[] = { /* PinObjectIDsRequest */
	{ 1, 0, 10 }, /* owner_address */
	{ 2, 1, RC__NO_SUB }, /* object_ids */
	{ 3, 2, RC__NO_SUB }, /* generator_id */
};
static const rc__field f54[] = { /* PinObjectIDsReply */
	{ 1, 0, RC__NO_SUB }, /* successes */
};
static const rc__field f55[] = { /* GetNodeStatsRequest */
	{ 1, 0, RC__NO_SUB }, /* include_memory_info */
};
static const rc__field f56[] = { /* ResourceAllocations_ResourceSlot */
	{ 1, 0, RC__NO_SUB }, /* slot */
	{ 2, 1, RC__NO_SUB }, /* allocation */
};
static const rc__field f57[] = { /* ResourceAllocations */
	{ 1, 0, 56 }, /* resource_slots */
};
static const rc__field f58[] = { /* ObjectRefInfo */
	{ 1, 0, RC__NO_SUB }, /* object_id */
	{ 2, 1, RC__NO_SUB }, /* call_site */
	{ 3, 2, RC__NO_SUB }, /* object_size */
	{ 4, 3, RC__NO_SUB }, /* local_ref_count */
	{ 5, 4, RC__NO_SUB }, /* submitted_task_ref_count */
	{ 6, 5, RC__NO_SUB }, /* contained_in_owned */
	{ 7, 6, RC__NO_SUB }, /* pinned_in_memory */
	{ 8, 7, RC__NO_SUB }, /* task_status */
	{ 9, 8, RC__NO_SUB }, /* attempt_number */
};
static const rc__field f59[] = { /* CoreWorkerStats */
	{ 1, 0, RC__NO_SUB }, /* num_pending_tasks */
	{ 2, 1, RC__NO_SUB }, /* num_object_refs_in_scope */
	{ 3, 2, RC__NO_SUB }, /* ip_address */
	{ 4, 3, RC__NO_SUB }, /* port */
	{ 5, 4, RC__NO_SUB }, /* actor_id */
	{ 6, 5, 2 }, /* used_resources */
	{ 8, 6, RC__NO_SUB }, /* num_in_plasma */
	{ 9, 7, RC__NO_SUB }, /* num_local_objects */
	{ 10, 8, RC__NO_SUB }, /* used_object_store_memory */
	{ 11, 9, RC__NO_SUB }, /* task_queue_length */
	{ 12, 10, RC__NO_SUB }, /* num_executed_tasks */
	{ 13, 11, 58 }, /* object_refs */
	{ 14, 12, RC__NO_SUB }, /* job_id */
	{ 15, 13, RC__NO_SUB }, /* worker_id */
	{ 16, 14, RC__NO_SUB }, /* language */
	{ 17, 15, RC__NO_SUB }, /* pid */
	{ 18, 16, RC__NO_SUB }, /* worker_type */
	{ 19, 17, RC__NO_SUB }, /* objects_total */
	{ 20, 18, RC__NO_SUB }, /* num_owned_objects */
	{ 21, 19, RC__NO_SUB }, /* num_owned_actors */
	{ 22, 20, RC__NO_SUB }, /* num_running_tasks */
	{ 23, 21, RC__NO_SUB }, /* num_in_flight_arg_pinning_requests */
	{ 24, 22, RC__NO_SUB }, /* num_of_failed_arg_pinning_requests */
};
static const rc__field f60[] = { /* ObjectStoreStats */
	{ 1, 0, RC__NO_SUB }, /* spill_time_total_s */
	{ 2, 1, RC__NO_SUB }, /* spilled_bytes_total */
	{ 3, 2, RC__NO_SUB }, /* spilled_objects_total */
	{ 4, 3, RC__NO_SUB }, /* restore_time_total_s */
	{ 5, 4, RC__NO_SUB }, /* restored_bytes_total */
	{ 6, 5, RC__NO_SUB }, /* restored_objects_total */
	{ 7, 6, RC__NO_SUB }, /* object_store_bytes_used */
	{ 8, 7, RC__NO_SUB }, /* object_store_bytes_avail */
	{ 9, 8, RC__NO_SUB }, /* object_store_bytes_primary_copy */
	{ 10, 9, RC__NO_SUB }, /* object_store_bytes_fallback */
	{ 11, 10, RC__NO_SUB }, /* num_local_objects */
	{ 12, 11, RC__NO_SUB }, /* object_pulls_queued */
	{ 13, 12, RC__NO_SUB }, /* num_object_store_primary_copies */
	{ 14, 13, RC__NO_SUB }, /* cumulative_created_objects */
	{ 15, 14, RC__NO_SUB }, /* cumulative_created_bytes */
};
static const rc__field f61[] = { /* GetNodeStatsReply */
	{ 1, 0, 59 }, /* core_workers_stats */
	{ 3, 1, RC__NO_SUB }, /* num_workers */
	{ 6, 2, 60 }, /* store_stats */
};
static const rc__field f62[] = { /* FormatGlobalMemoryInfoRequest */
	{ 1, 0, RC__NO_SUB }, /* include_memory_info */
};
static const rc__field f63[] = { /* FormatGlobalMemoryInfoReply */
	{ 1, 0, RC__NO_SUB }, /* memory_summary */
	{ 2, 1, 60 }, /* store_stats */
};
static const rc__field f64[] = { /* ReleaseUnusedBundlesRequest */
	{ 1, 0, 46 }, /* bundles_in_use */
};
static const rc__field f65[] = { /* GetSystemConfigReply */
	{ 1, 0, RC__NO_SUB }, /* system_config */
};
static const rc__field f68[] = { /* GetObjectsInfoRequest */
	{ 1, 0, RC__NO_SUB }, /* limit */
};
static const rc__field f69[] = { /* GetObjectsInfoReply */
	{ 1, 0, 59 }, /* core_workers_stats */
	{ 2, 1, RC__NO_SUB }, /* total */
};
static const rc__field f72[] = { /* CancelLeasesWithResourceShapesRequest_ResourceShape */
	{ 1, 0, 0 }, /* resource_shape */
};
static const rc__field f73[] = { /* CancelLeasesWithResourceShapesRequest */
	{ 1, 0, 72 }, /* resource_shapes */
};
static const rc__field f74[] = { /* PrestartWorkersRequest */
	{ 1, 0, RC__NO_SUB }, /* language */
	{ 2, 1, RC__NO_SUB }, /* job_id */
	{ 3, 2, 26 }, /* runtime_env_info */
	{ 4, 3, RC__NO_SUB }, /* keep_alive_duration_secs */
	{ 5, 4, RC__NO_SUB }, /* num_workers */
};
static const rc__field f75[] = { /* ReturnWorkerLeaseRequest */
	{ 1, 0, RC__NO_SUB }, /* worker_port */
	{ 2, 1, RC__NO_SUB }, /* lease_id */
	{ 3, 2, RC__NO_SUB }, /* disconnect_worker */
	{ 4, 3, RC__NO_SUB }, /* worker_exiting */
	{ 5, 4, RC__NO_SUB }, /* disconnect_worker_error_detail */
};
static const rc__field f76[] = { /* RemovePlacementGroupBundlesRequest */
	{ 1, 0, RC__NO_SUB }, /* placement_group_id */
	{ 2, 1, 46 }, /* bundle_specs */
};
static const rc__field f77[] = { /* ResizeLocalResourceInstancesRequest */
	{ 1, 0, 0 }, /* resources */
};
static const rc__field f78[] = { /* ResizeLocalResourceInstancesReply */
	{ 1, 0, 0 }, /* total_resources */
};
static const rc__field f79[] = { /* GetWorkerFailureCauseRequest */
	{ 1, 0, RC__NO_SUB }, /* lease_id */
};
static const rc__field f80[] = { /* GetWorkerFailureCauseReply */
	{ 1, 0, RC__NO_SUB }, /* failure_cause */
	{ 2, 1, RC__NO_SUB }, /* fail_task_immediately */
};
static const rc__field f81[] = { /* IsLocalWorkerDeadRequest */
	{ 1, 0, RC__NO_SUB }, /* worker_id */
};
static const rc__field f82[] = { /* IsLocalWorkerDeadReply */
	{ 1, 0, RC__NO_SUB }, /* is_dead */
};
static const rc__field f83[] = { /* GetWorkerPIDsReply */
	{ 1, 0, RC__NO_SUB }, /* pids */
};
static const rc__field f84[] = { /* GetAgentPIDsReply */
	{ 1, 0, RC__NO_SUB }, /* dashboard_agent_pid */
	{ 2, 1, RC__NO_SUB }, /* runtime_env_agent_pid */
};
static const rc__field f85[] = { /* RuntimeEnvFailedContext */
	{ 1, 0, RC__NO_SUB }, /* error_message */
};
static const rc__field f86[] = { /* NodeDeathInfo */
	{ 1, 0, RC__NO_SUB }, /* reason */
	{ 2, 1, RC__NO_SUB }, /* reason_message */
};
static const rc__field f87[] = { /* ActorDiedErrorContext */
	{ 1, 0, RC__NO_SUB }, /* error_message */
	{ 2, 1, RC__NO_SUB }, /* owner_id */
	{ 3, 2, RC__NO_SUB }, /* owner_ip_address */
	{ 4, 3, RC__NO_SUB }, /* node_ip_address */
	{ 5, 4, RC__NO_SUB }, /* pid */
	{ 6, 5, RC__NO_SUB }, /* name */
	{ 7, 6, RC__NO_SUB }, /* ray_namespace */
	{ 8, 7, RC__NO_SUB }, /* class_name */
	{ 9, 8, RC__NO_SUB }, /* actor_id */
	{ 10, 9, RC__NO_SUB }, /* never_started */
	{ 11, 10, 86 }, /* node_death_info */
	{ 12, 11, RC__NO_SUB }, /* reason */
};
static const rc__field f88[] = { /* ActorUnschedulableContext */
	{ 1, 0, RC__NO_SUB }, /* error_message */
};
static const rc__field f89[] = { /* OomContext */
	{ 1, 0, RC__NO_SUB }, /* error_message */
	{ 2, 1, RC__NO_SUB }, /* fail_immediately */
};
static const rc__field f90[] = { /* ActorDeathCause */
	{ 1, 0, RC__NO_SUB }, /* creation_task_failure_context */
	{ 2, 1, 85 }, /* runtime_env_failed_context */
	{ 3, 2, 87 }, /* actor_died_error_context */
	{ 4, 3, 88 }, /* actor_unschedulable_context */
	{ 5, 4, 89 }, /* oom_context */
};
static const rc__field f91[] = { /* KillLocalActorRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_actor_id */
	{ 2, 1, RC__NO_SUB }, /* worker_id */
	{ 3, 2, RC__NO_SUB }, /* force_kill */
	{ 4, 3, 90 }, /* death_cause */
};
static const rc__field f92[] = { /* CancelLocalTaskRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_task_id */
	{ 2, 1, RC__NO_SUB }, /* force_kill */
	{ 3, 2, RC__NO_SUB }, /* recursive */
	{ 4, 3, RC__NO_SUB }, /* caller_worker_id */
	{ 5, 4, RC__NO_SUB }, /* executor_worker_id */
};
static const rc__field f93[] = { /* CancelLocalTaskReply */
	{ 1, 0, RC__NO_SUB }, /* requested_task_running */
	{ 2, 1, RC__NO_SUB }, /* attempt_succeeded */
};
static const rc__field f94[] = { /* FreeLocalObjectsRequest */
	{ 1, 0, RC__NO_SUB }, /* object_ids */
};
static const rc__field f95[] = { /* PushRequest */
	{ 1, 0, RC__NO_SUB }, /* push_id */
	{ 2, 1, RC__NO_SUB }, /* object_id */
	{ 3, 2, RC__NO_SUB }, /* node_id */
	{ 4, 3, 10 }, /* owner_address */
	{ 5, 4, RC__NO_SUB }, /* chunk_index */
	{ 6, 5, RC__NO_SUB }, /* data_size */
	{ 7, 6, RC__NO_SUB }, /* metadata_size */
	{ 8, 7, RC__NO_SUB }, /* data */
};
static const rc__field f96[] = { /* PullRequest */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* object_ids */
};
static const rc__field f98[] = { /* GcsStatus */
	{ 1, 0, RC__NO_SUB }, /* code */
	{ 2, 1, RC__NO_SUB }, /* message */
};
static const rc__field f99[] = { /* GetClusterIdReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, RC__NO_SUB }, /* cluster_id */
};
static const rc__field f100[] = { /* NodeSnapshot */
	{ 1, 0, RC__NO_SUB }, /* state */
	{ 2, 1, RC__NO_SUB }, /* idle_duration_ms */
	{ 3, 2, RC__NO_SUB }, /* node_activity */
};
static const rc__field f101[] = { /* GcsNodeInfo */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* node_manager_address */
	{ 3, 2, RC__NO_SUB }, /* raylet_socket_name */
	{ 4, 3, RC__NO_SUB }, /* object_store_socket_name */
	{ 5, 4, RC__NO_SUB }, /* node_manager_port */
	{ 6, 5, RC__NO_SUB }, /* object_manager_port */
	{ 7, 6, RC__NO_SUB }, /* state */
	{ 8, 7, RC__NO_SUB }, /* node_manager_hostname */
	{ 9, 8, RC__NO_SUB }, /* metrics_export_port */
	{ 11, 12, 0 }, /* resources_total */
	{ 12, 13, RC__NO_SUB }, /* node_name */
	{ 13, 14, RC__NO_SUB }, /* instance_id */
	{ 14, 15, RC__NO_SUB }, /* node_type_name */
	{ 15, 16, RC__NO_SUB }, /* instance_type_name */
	{ 23, 17, RC__NO_SUB }, /* start_time_ms */
	{ 24, 18, RC__NO_SUB }, /* end_time_ms */
	{ 25, 19, RC__NO_SUB }, /* is_head_node */
	{ 26, 20, 1 }, /* labels */
	{ 27, 9, RC__NO_SUB }, /* runtime_env_agent_port */
	{ 28, 21, 100 }, /* state_snapshot */
	{ 29, 22, 86 }, /* death_info */
	{ 30, 10, RC__NO_SUB }, /* metrics_agent_port */
	{ 31, 11, RC__NO_SUB }, /* dashboard_agent_listen_port */
	{ 32, 23, RC__NO_SUB }, /* temp_dir */
	{ 33, 24, RC__NO_SUB }, /* session_dir */
};
static const rc__field f102[] = { /* RegisterNodeRequest */
	{ 1, 0, 101 }, /* node_info */
};
static const rc__field f103[] = { /* RegisterNodeReply */
	{ 1, 0, 98 }, /* status */
};
static const rc__field f104[] = { /* UnregisterNodeRequest */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, 86 }, /* node_death_info */
};
static const rc__field f105[] = { /* UnregisterNodeReply */
	{ 1, 0, 98 }, /* status */
};
static const rc__field f106[] = { /* GetAllNodeInfoRequest_NodeSelector */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* node_name */
	{ 3, 2, RC__NO_SUB }, /* node_ip_address */
	{ 4, 3, RC__NO_SUB }, /* is_head_node */
};
static const rc__field f107[] = { /* GetAllNodeInfoRequest */
	{ 1, 0, RC__NO_SUB }, /* limit */
	{ 2, 1, 106 }, /* node_selectors */
	{ 3, 2, RC__NO_SUB }, /* state_filter */
};
static const rc__field f108[] = { /* GetAllNodeInfoReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, 101 }, /* node_info_list */
	{ 3, 2, RC__NO_SUB }, /* total */
	{ 4, 3, RC__NO_SUB }, /* num_filtered */
};
static const rc__field f109[] = { /* GetInternalConfigReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, RC__NO_SUB }, /* config */
};
static const rc__field f110[] = { /* CheckAliveRequest */
	{ 1, 0, RC__NO_SUB }, /* node_ids */
};
static const rc__field f111[] = { /* CheckAliveReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, RC__NO_SUB }, /* ray_version */
	{ 3, 2, RC__NO_SUB }, /* raylet_alive */
	{ 4, 3, RC__NO_SUB }, /* is_leader */
};
static const rc__field f112[] = { /* GetAllNodeAddressAndLivenessRequest */
	{ 1, 0, RC__NO_SUB }, /* node_ids */
	{ 2, 1, RC__NO_SUB }, /* limit */
	{ 3, 2, RC__NO_SUB }, /* state_filter */
};
static const rc__field f113[] = { /* GcsNodeAddressAndLiveness */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* node_manager_address */
	{ 3, 2, RC__NO_SUB }, /* node_manager_port */
	{ 4, 3, RC__NO_SUB }, /* object_manager_port */
	{ 5, 4, RC__NO_SUB }, /* state */
	{ 6, 5, 86 }, /* death_info */
};
static const rc__field f114[] = { /* GetAllNodeAddressAndLivenessReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, 113 }, /* node_info_list */
};
static const rc__field f115[] = { /* InternalKVGetRequest */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, RC__NO_SUB }, /* namespace */
};
static const rc__field f116[] = { /* InternalKVGetReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, RC__NO_SUB }, /* value */
};
static const rc__field f117[] = { /* InternalKVPutRequest */
	{ 1, 0, RC__NO_SUB }, /* key */
	{ 2, 1, RC__NO_SUB }, /* value */
	{ 3, 2, RC__NO_SUB }, /* overwrite */
	{ 4, 3, RC__NO_SUB }, /* namespace */
};
static const rc__field f118[] = { /* InternalKVPutReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, RC__NO_SUB }, /* added */
};
static const rc__field f119[] = { /* JobTableData */
	{ 1, 0, RC__NO_SUB }, /* job_id */
	{ 2, 1, RC__NO_SUB }, /* is_dead */
	{ 3, 2, RC__NO_SUB }, /* timestamp */
	{ 4, 3, RC__NO_SUB }, /* driver_ip_address */
	{ 5, 4, RC__NO_SUB }, /* driver_pid */
	{ 6, 5, 33 }, /* config */
	{ 7, 6, RC__NO_SUB }, /* start_time */
	{ 8, 7, RC__NO_SUB }, /* end_time */
	{ 9, 8, RC__NO_SUB }, /* entrypoint */
	{ 10, 9, RC__NO_SUB }, /* job_info */
	{ 11, 10, RC__NO_SUB }, /* is_running_tasks */
	{ 12, 11, 10 }, /* driver_address */
};
static const rc__field f120[] = { /* AddJobRequest */
	{ 1, 0, 119 }, /* data */
};
static const rc__field f121[] = { /* AddJobReply */
	{ 1, 0, 98 }, /* status */
};
static const rc__field f122[] = { /* MarkJobFinishedRequest */
	{ 1, 0, RC__NO_SUB }, /* job_id */
};
static const rc__field f123[] = { /* MarkJobFinishedReply */
	{ 1, 0, 98 }, /* status */
};
static const rc__field f124[] = { /* GetAllJobInfoRequest */
	{ 1, 0, RC__NO_SUB }, /* limit */
	{ 2, 1, RC__NO_SUB }, /* job_or_submission_id */
	{ 3, 2, RC__NO_SUB }, /* skip_submission_job_info_field */
	{ 4, 3, RC__NO_SUB }, /* skip_is_running_tasks_field */
};
static const rc__field f125[] = { /* GetAllJobInfoReply */
	{ 1, 0, 98 }, /* status */
	{ 2, 1, 119 }, /* job_info_list */
};
static const rc__field f126[] = { /* WorkerTableData */
	{ 1, 0, RC__NO_SUB }, /* is_alive */
	{ 2, 1, 10 }, /* worker_address */
	{ 3, 2, RC__NO_SUB }, /* timestamp */
	{ 5, 3, RC__NO_SUB }, /* worker_type */
	{ 6, 4, 3 }, /* worker_info */
	{ 18, 5, RC__NO_SUB }, /* creation_task_exception */
	{ 19, 6, RC__NO_SUB }, /* exit_type */
	{ 20, 7, RC__NO_SUB }, /* exit_detail */
	{ 21, 8, RC__NO_SUB }, /* pid */
	{ 23, 9, RC__NO_SUB }, /* start_time_ms */
	{ 24, 10, RC__NO_SUB }, /* end_time_ms */
	{ 25, 11, RC__NO_SUB }, /* worker_launch_time_ms */
	{ 26, 12, RC__NO_SUB }, /* worker_launched_time_ms */
	{ 27, 13, RC__NO_SUB }, /* debugger_port */
	{ 28, 14, RC__NO_SUB }, /* num_paused_threads */
	{ 29, 15, RC__NO_SUB }, /* memory_used_bytes_at_death */
	{ 30, 16, RC__NO_SUB }, /* job_id */
};
static const rc__field f127[] = { /* ReportWorkerFailureRequest */
	{ 1, 0, 126 }, /* worker_failure */
};
static const rc__field f128[] = { /* ReportWorkerFailureReply */
	{ 1, 0, 98 }, /* status */
};
static const rc__field f129[] = { /* WorkerObjectLocationsPubMessage */
	{ 1, 0, RC__NO_SUB }, /* node_ids */
	{ 2, 1, RC__NO_SUB }, /* object_size */
	{ 3, 2, RC__NO_SUB }, /* spilled_url */
	{ 4, 3, RC__NO_SUB }, /* spilled_node_id */
	{ 5, 4, RC__NO_SUB }, /* ref_removed */
	{ 6, 5, RC__NO_SUB }, /* pending_creation */
	{ 7, 6, RC__NO_SUB }, /* did_spill */
};
static const rc__field f131[] = { /* WorkerDeltaData */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* worker_id */
};
static const rc__field f132[] = { /* ErrorTableData */
	{ 1, 0, RC__NO_SUB }, /* job_id */
	{ 2, 1, RC__NO_SUB }, /* type */
	{ 3, 2, RC__NO_SUB }, /* error_message */
	{ 4, 3, RC__NO_SUB }, /* timestamp */
};
static const rc__field f134[] = { /* LogBatch */
	{ 1, 0, RC__NO_SUB }, /* ip */
	{ 2, 1, RC__NO_SUB }, /* pid */
	{ 3, 2, RC__NO_SUB }, /* job_id */
	{ 4, 3, RC__NO_SUB }, /* is_error */
	{ 5, 4, RC__NO_SUB }, /* lines */
	{ 6, 5, RC__NO_SUB }, /* actor_name */
	{ 7, 6, RC__NO_SUB }, /* task_name */
};
static const rc__field f135[] = { /* NodeResourceUsage */
	{ 1, 0, RC__NO_SUB }, /* json */
};
static const rc__field f136[] = { /* PubMessage */
	{ 1, 0, RC__NO_SUB }, /* channel_type */
	{ 2, 1, RC__NO_SUB }, /* key_id */
	{ 3, 2, RC__NO_SUB }, /* worker_ref_removed_message */
	{ 4, 3, 129 }, /* worker_object_locations_message */
	{ 5, 4, 130 }, /* failure_message */
	{ 6, 5, RC__NO_SUB }, /* actor_message */
	{ 7, 6, 119 }, /* job_message */
	{ 8, 7, 101 }, /* node_info_message */
	{ 9, 8, 131 }, /* worker_delta_message */
	{ 10, 9, 132 }, /* error_info_message */
	{ 11, 10, 134 }, /* log_batch_message */
	{ 12, 11, 135 }, /* node_resource_usage_message */
	{ 13, 12, 113 }, /* node_address_and_liveness_message */
	{ 14, 13, RC__NO_SUB }, /* sequence_id */
};
static const rc__field f137[] = { /* GcsSubscriberPollRequest */
	{ 1, 0, RC__NO_SUB }, /* subscriber_id */
	{ 2, 1, RC__NO_SUB }, /* max_processed_sequence_id */
	{ 3, 2, RC__NO_SUB }, /* publisher_id */
};
static const rc__field f138[] = { /* GcsSubscriberPollReply */
	{ 1, 0, 136 }, /* pub_messages */
	{ 2, 1, RC__NO_SUB }, /* publisher_id */
	{ 100, 2, 98 }, /* status */
};
static const rc__field f140[] = { /* WorkerRefRemovedSubMessage */
	{ 1, 0, RC__NO_SUB }, /* intended_worker_id */
	{ 2, 1, 27 }, /* reference */
	{ 3, 2, RC__NO_SUB }, /* contained_in_id */
	{ 4, 3, RC__NO_SUB }, /* subscriber_worker_id */
};
static const rc__field f141[] = { /* WorkerObjectLocationsSubMessage */
	{ 1, 0, RC__NO_SUB }, /* intended_worker_id */
	{ 2, 1, RC__NO_SUB }, /* object_id */
};
static const rc__field f143[] = { /* SubMessage */
	{ 2, 0, 140 }, /* worker_ref_removed_message */
	{ 3, 1, 141 }, /* worker_object_locations_message */
};
static const rc__field f144[] = { /* Command */
	{ 1, 0, RC__NO_SUB }, /* channel_type */
	{ 2, 1, RC__NO_SUB }, /* key_id */
	{ 3, 2, 139 }, /* unsubscribe_message */
	{ 4, 3, 143 }, /* subscribe_message */
};
static const rc__field f145[] = { /* GcsSubscriberCommandBatchRequest */
	{ 1, 0, RC__NO_SUB }, /* subscriber_id */
	{ 2, 1, 144 }, /* commands */
	{ 3, 2, RC__NO_SUB }, /* sender_id */
};
static const rc__field f146[] = { /* GcsSubscriberCommandBatchReply */
	{ 100, 0, 98 }, /* status */
};
static const rc__field f147[] = { /* ReportJobErrorRequest */
	{ 1, 0, 132 }, /* job_error */
};
static const rc__field f148[] = { /* ReportJobErrorReply */
	{ 1, 0, 98 }, /* status */
};
static const rc__field f149[] = { /* autoscaler_DrainNodeRequest */
	{ 1, 0, RC__NO_SUB }, /* node_id */
	{ 2, 1, RC__NO_SUB }, /* reason */
	{ 3, 2, RC__NO_SUB }, /* reason_message */
	{ 4, 3, RC__NO_SUB }, /* deadline_timestamp_ms */
};
static const rc__field f150[] = { /* autoscaler_DrainNodeReply */
	{ 1, 0, RC__NO_SUB }, /* is_accepted */
	{ 2, 1, RC__NO_SUB }, /* rejection_reason_message */
};
static const rc__field f152[] = { /* RayObject */
	{ 1, 0, RC__NO_SUB }, /* data */
	{ 2, 1, RC__NO_SUB }, /* metadata */
	{ 3, 2, 27 }, /* nested_inlined_refs */
};
static const rc__field f153[] = { /* PubsubLongPollingRequest */
	{ 1, 0, RC__NO_SUB }, /* subscriber_id */
	{ 2, 1, RC__NO_SUB }, /* max_processed_sequence_id */
	{ 3, 2, RC__NO_SUB }, /* publisher_id */
};
static const rc__field f154[] = { /* PubsubLongPollingReply */
	{ 1, 0, 136 }, /* pub_messages */
	{ 2, 1, RC__NO_SUB }, /* publisher_id */
};
static const rc__field f155[] = { /* PubsubCommandBatchRequest */
	{ 1, 0, RC__NO_SUB }, /* subscriber_id */
	{ 2, 1, 144 }, /* commands */
};
static const rc__field f156[] = { /* ObjectSpilledLocationUpdate */
	{ 3, 0, RC__NO_SUB }, /* spilled_url */
	{ 4, 1, RC__NO_SUB }, /* spilled_to_local_storage */
};
static const rc__field f157[] = { /* ObjectLocationUpdate */
	{ 1, 0, RC__NO_SUB }, /* object_id */
	{ 2, 1, RC__NO_SUB }, /* plasma_location_update */
	{ 3, 2, 156 }, /* spilled_location_update */
	{ 4, 3, RC__NO_SUB }, /* generator_id */
};
static const rc__field f158[] = { /* UpdateObjectLocationBatchRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_worker_id */
	{ 2, 1, RC__NO_SUB }, /* node_id */
	{ 3, 2, 157 }, /* object_location_updates */
};
static const rc__field f159[] = { /* KillActorRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_actor_id */
	{ 2, 1, RC__NO_SUB }, /* force_kill */
	{ 3, 2, 90 }, /* death_cause */
};
static const rc__field f160[] = { /* CancelTaskRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_task_id */
	{ 2, 1, RC__NO_SUB }, /* force_kill */
	{ 3, 2, RC__NO_SUB }, /* recursive */
	{ 4, 3, RC__NO_SUB }, /* caller_worker_id */
};
static const rc__field f161[] = { /* CancelTaskReply */
	{ 1, 0, RC__NO_SUB }, /* requested_task_running */
	{ 2, 1, RC__NO_SUB }, /* attempt_succeeded */
};
static const rc__field f162[] = { /* GetCoreWorkerStatsRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_worker_id */
	{ 2, 1, RC__NO_SUB }, /* include_memory_info */
	{ 3, 2, RC__NO_SUB }, /* include_task_info */
	{ 4, 3, RC__NO_SUB }, /* limit */
};
static const rc__field f163[] = { /* GetCoreWorkerStatsReply */
	{ 1, 0, 59 }, /* core_worker_stats */
	{ 2, 1, RC__NO_SUB }, /* owned_task_info_entries */
	{ 3, 2, RC__NO_SUB }, /* running_task_ids */
	{ 4, 3, RC__NO_SUB }, /* tasks_total */
};
static const rc__field f166[] = { /* SpillObjectsRequest */
	{ 1, 0, 27 }, /* object_refs_to_spill */
};
static const rc__field f167[] = { /* SpillObjectsReply */
	{ 1, 0, RC__NO_SUB }, /* spilled_objects_url */
};
static const rc__field f168[] = { /* RestoreSpilledObjectsRequest */
	{ 1, 0, RC__NO_SUB }, /* spilled_objects_url */
	{ 2, 1, RC__NO_SUB }, /* object_ids_to_restore */
};
static const rc__field f169[] = { /* DeleteSpilledObjectsRequest */
	{ 1, 0, RC__NO_SUB }, /* spilled_objects_url */
};
static const rc__field f170[] = { /* PlasmaObjectReadyRequest */
	{ 1, 0, RC__NO_SUB }, /* object_id */
};
static const rc__field f171[] = { /* ExitRequest */
	{ 1, 0, RC__NO_SUB }, /* force_exit */
};
static const rc__field f172[] = { /* ExitReply */
	{ 1, 0, RC__NO_SUB }, /* success */
};
static const rc__field f173[] = { /* ActorCallArgWaitCompleteRequest */
	{ 1, 0, RC__NO_SUB }, /* intended_worker_id */
	{ 2, 1, RC__NO_SUB }, /* task_id */
	{ 3, 2, RC__NO_SUB }, /* attempt_number */
};
static const rc__field f174[] = { /* syncer_RaySyncMessage */
	{ 1, 0, RC__NO_SUB }, /* version */
	{ 2, 1, RC__NO_SUB }, /* message_type */
	{ 3, 2, RC__NO_SUB }, /* sync_message */
	{ 4, 3, RC__NO_SUB }, /* node_id */
};
static const rc__field f175[] = { /* syncer_ResourceViewSyncMessage */
	{ 1, 0, 0 }, /* resources_available */
	{ 2, 1, 0 }, /* resources_total */
	{ 3, 2, RC__NO_SUB }, /* object_pulls_queued */
	{ 4, 3, RC__NO_SUB }, /* idle_duration_ms */
	{ 5, 4, RC__NO_SUB }, /* is_draining */
	{ 6, 5, RC__NO_SUB }, /* draining_deadline_timestamp_ms */
	{ 7, 6, RC__NO_SUB }, /* node_activity */
	{ 8, 7, 1 }, /* labels */
};
static const rc__field f176[] = { /* syncer_CommandsSyncMessage */
	{ 1, 0, RC__NO_SUB }, /* should_global_gc */
};
static const rc__field f177[] = { /* GetOrCreateRuntimeEnvRequest */
	{ 1, 0, RC__NO_SUB }, /* serialized_runtime_env */
	{ 2, 1, 25 }, /* runtime_env_config */
	{ 3, 2, RC__NO_SUB }, /* job_id */
	{ 4, 3, RC__NO_SUB }, /* source_process */
};
static const rc__field f178[] = { /* GetOrCreateRuntimeEnvReply */
	{ 1, 0, RC__NO_SUB }, /* status */
	{ 2, 1, RC__NO_SUB }, /* error_message */
	{ 3, 2, RC__NO_SUB }, /* serialized_runtime_env_context */
};
static const rc__field f179[] = { /* DeleteRuntimeEnvIfPossibleRequest */
	{ 1, 0, RC__NO_SUB }, /* serialized_runtime_env */
	{ 2, 1, RC__NO_SUB }, /* source_process */
};
static const rc__field f180[] = { /* DeleteRuntimeEnvIfPossibleReply */
	{ 1, 0, RC__NO_SUB }, /* status */
	{ 2, 1, RC__NO_SUB }, /* error_message */
};
static const rc__field f181[] = { /* syncer_RaySyncMessageBatch */
	{ 1, 0, 174 }, /* messages */
};
static const rc__field f182[] = { /* RayErrorInfo */
	{ 5, 0, RC__NO_SUB }, /* error_message */
	{ 11, 1, RC__NO_SUB }, /* error_type */
};
static const rc__field f183[] = { /* GcsPublishRequest */
	{ 1, 0, 136 }, /* pub_messages */
};
static const rc__field f184[] = { /* GcsPublishReply */
	{ 100, 0, 98 }, /* status */
};
static const rc__field f185[] = { /* ListLogsRequest */
	{ 1, 0, RC__NO_SUB }, /* glob_filter */
};
static const rc__field f186[] = { /* ListLogsReply */
	{ 1, 0, RC__NO_SUB }, /* log_files */
};
static const rc__field f187[] = { /* StreamLogRequest */
	{ 1, 0, RC__NO_SUB }, /* log_file_name */
	{ 2, 1, RC__NO_SUB }, /* keep_alive */
	{ 3, 2, RC__NO_SUB }, /* lines */
	{ 4, 3, RC__NO_SUB }, /* interval */
	{ 5, 4, RC__NO_SUB }, /* start_offset */
	{ 6, 5, RC__NO_SUB }, /* end_offset */
};
static const rc__field f188[] = { /* StreamLogReply */
	{ 1, 0, RC__NO_SUB }, /* data */
};
static const rc__field f189[] = { /* GetTracebackRequest */
	{ 1, 0, RC__NO_SUB }, /* pid */
	{ 2, 1, RC__NO_SUB }, /* native */
	{ 3, 2, RC__NO_SUB }, /* subprocesses */
};
static const rc__field f190[] = { /* GetTracebackReply */
	{ 1, 0, RC__NO_SUB }, /* success */
	{ 2, 1, RC__NO_SUB }, /* output */
};
static const rc__field f191[] = { /* CpuProfilingRequest */
	{ 1, 0, RC__NO_SUB }, /* pid */
	{ 2, 1, RC__NO_SUB }, /* format */
	{ 3, 2, RC__NO_SUB }, /* duration */
	{ 4, 3, RC__NO_SUB }, /* native */
	{ 5, 4, RC__NO_SUB }, /* idle */
	{ 6, 5, RC__NO_SUB }, /* subprocesses */
};
static const rc__field f192[] = { /* CpuProfilingReply */
	{ 1, 0, RC__NO_SUB }, /* success */
	{ 2, 1, RC__NO_SUB }, /* output */
};
static const rc__field f193[] = { /* MemoryProfilingRequest */
	{ 1, 0, RC__NO_SUB }, /* pid */
	{ 2, 1, RC__NO_SUB }, /* format */
	{ 3, 2, RC__NO_SUB }, /* duration */
	{ 4, 3, RC__NO_SUB }, /* native */
	{ 5, 4, RC__NO_SUB }, /* leaks */
	{ 6, 5, RC__NO_SUB }, /* trace_python_allocators */
};
static const rc__field f194[] = { /* MemoryProfilingReply */
	{ 1, 0, RC__NO_SUB }, /* success */
	{ 2, 1, RC__NO_SUB }, /* output */
	{ 3, 2, RC__NO_SUB }, /* warning */
};
static const rc__field f195[] = { /* GpuProfilingReply */
	{ 1, 0, RC__NO_SUB }, /* success */
	{ 2, 1, RC__NO_SUB }, /* output */
};
static const rc__field f196[] = { /* RuntimeEnvState */
	{ 1, 0, RC__NO_SUB }, /* runtime_env */
	{ 2, 1, RC__NO_SUB }, /* ref_cnt */
	{ 3, 2, RC__NO_SUB }, /* success */
	{ 4, 3, RC__NO_SUB }, /* error */
	{ 5, 4, RC__NO_SUB }, /* creation_time_ms */
};
static const rc__field f197[] = { /* GetRuntimeEnvsInfoRequest */
	{ 1, 0, RC__NO_SUB }, /* limit */
};
static const rc__field f198[] = { /* GetRuntimeEnvsInfoReply */
	{ 1, 0, 196 }, /* runtime_env_states */
	{ 2, 1, RC__NO_SUB }, /* total */
};

static const rc__message messages[] = {
	{ &rw__map_string_double__descriptor, f0, 2, true },
	{ &rw__map_string_string__descriptor, f1, 2, true },
	{ &rw__map_string_resource_allocations__descriptor, f2, 2, true },
	{ &rw__map_string_bytes__descriptor, f3, 2, true },
	{ &rw__label_selector_constraint__descriptor, f4, 3, true },
	{ &rw__label_selector__descriptor, f5, 1, true },
	{ &rw__resource_demand__descriptor, f6, 5, true },
	{ &rw__resource_load__descriptor, f7, 1, true },
	{ &rw__resources_data__descriptor, f8, 11, true },
	{ &rw__get_resource_load_reply__descriptor, f9, 1, true },
	{ &rw__address__descriptor, f10, 4, true },
	{ &rw__default_scheduling_strategy__descriptor, NULL, 0, true },
	{ &rw__placement_group_scheduling_strategy__descriptor, f12, 3, true },
	{ &rw__spread_scheduling_strategy__descriptor, NULL, 0, true },
	{ &rw__node_affinity_scheduling_strategy__descriptor, f14, 4, true },
	{ &rw__label_in__descriptor, f15, 1, true },
	{ &rw__label_not_in__descriptor, f16, 1, true },
	{ &rw__label_exists__descriptor, NULL, 0, true },
	{ &rw__label_does_not_exist__descriptor, NULL, 0, true },
	{ &rw__label_operator__descriptor, f19, 4, true },
	{ &rw__label_match_expression__descriptor, f20, 2, true },
	{ &rw__label_match_expressions__descriptor, f21, 1, true },
	{ &rw__node_label_scheduling_strategy__descriptor, f22, 2, true },
	{ &rw__scheduling_strategy__descriptor, f23, 5, true },
	{ &rw__runtime_env_uris__descriptor, f24, 2, true },
	{ &rw__runtime_env_config__descriptor, f25, 3, true },
	{ &rw__runtime_env_info__descriptor, f26, 3, true },
	{ &rw__object_reference__descriptor, f27, 4, true },
	{ &rw__task_arg__descriptor, f28, 1, true },
	{ &rw__fallback_option__descriptor, f29, 1, true },
	{ &rw__fallback_strategy__descriptor, f30, 1, true },
	{ &rw__lease_spec__descriptor, f31, 23, true },
	{ &rw__actor_creation_task_spec__descriptor, f32, 7, true },
	{ &rw__job_config__descriptor, f33, 9, true },
	{ &rw__request_worker_lease_request__descriptor, f34, 4, true },
	{ &rw__resource_id__descriptor, f35, 2, true },
	{ &rw__resource_map_entry__descriptor, f36, 2, true },
	{ &rw__request_worker_lease_reply__descriptor, f37, 9, true },
	{ &rw__worker_backlog_report__descriptor, f38, 2, true },
	{ &rw__report_worker_backlog_request__descriptor, f39, 2, true },
	{ &rw__return_worker_request__descriptor, NULL, 0, false },
	{ &rw__release_unused_actor_workers_request__descriptor, f41, 1, true },
	{ &rw__shutdown_raylet_request__descriptor, f42, 1, true },
	{ &rw__drain_raylet_request__descriptor, f43, 3, true },
	{ &rw__drain_raylet_reply__descriptor, f44, 2, true },
	{ &rw__bundle__bundle_identifier__descriptor, f45, 2, true },
	{ &rw__bundle__descriptor, f46, 4, true },
	{ &rw__prepare_bundle_resources_request__descriptor, f47, 1, true },
	{ &rw__prepare_bundle_resources_reply__descriptor, f48, 1, true },
	{ &rw__commit_bundle_resources_request__descriptor, f49, 1, true },
	{ &rw__cancel_resource_reserve_request__descriptor, NULL, 0, false },
	{ &rw__cancel_worker_lease_request__descriptor, f51, 1, true },
	{ &rw__cancel_worker_lease_reply__descriptor, NULL, 0, true },
	{ &rw__pin_object_ids_request__descriptor, f53, 3, true },
	{ &rw__pin_object_ids_reply__descriptor, f54, 1, true },
	{ &rw__get_node_stats_request__descriptor, f55, 1, true },
	{ &rw__resource_allocations__resource_slot__descriptor, f56, 2, true },
	{ &rw__resource_allocations__descriptor, f57, 1, true },
	{ &rw__object_ref_info__descriptor, f58, 9, true },
	{ &rw__core_worker_stats__descriptor, f59, 23, true },
	{ &rw__object_store_stats__descriptor, f60, 15, true },
	{ &rw__get_node_stats_reply__descriptor, f61, 3, true },
	{ &rw__format_global_memory_info_request__descriptor, f62, 1, true },
	{ &rw__format_global_memory_info_reply__descriptor, f63, 2, true },
	{ &rw__release_unused_bundles_request__descriptor, f64, 1, true },
	{ &rw__get_system_config_reply__descriptor, f65, 1, true },
	{ &rw__get_tasks_info_request__descriptor, NULL, 0, false },
	{ &rw__get_tasks_info_reply__descriptor, NULL, 0, false },
	{ &rw__get_objects_info_request__descriptor, f68, 1, true },
	{ &rw__get_objects_info_reply__descriptor, f69, 2, true },
	{ &rw__get_task_failure_cause_request__descriptor, NULL, 0, false },
	{ &rw__get_task_failure_cause_reply__descriptor, NULL, 0, false },
	{ &rw__cancel_leases_with_resource_shapes_request__resource_shape__descriptor, f72, 1, true },
	{ &rw__cancel_leases_with_resource_shapes_request__descriptor, f73, 1, true },
	{ &rw__prestart_workers_request__descriptor, f74, 5, true },
	{ &rw__return_worker_lease_request__descriptor, f75, 5, true },
	{ &rw__remove_placement_group_bundles_request__descriptor, f76, 2, true },
	{ &rw__resize_local_resource_instances_request__descriptor, f77, 1, true },
	{ &rw__resize_local_resource_instances_reply__descriptor, f78, 1, true },
	{ &rw__get_worker_failure_cause_request__descriptor, f79, 1, true },
	{ &rw__get_worker_failure_cause_reply__descriptor, f80, 2, true },
	{ &rw__is_local_worker_dead_request__descriptor, f81, 1, true },
	{ &rw__is_local_worker_dead_reply__descriptor, f82, 1, true },
	{ &rw__get_worker_pids_reply__descriptor, f83, 1, true },
	{ &rw__get_agent_pids_reply__descriptor, f84, 2, true },
	{ &rw__runtime_env_failed_context__descriptor, f85, 1, true },
	{ &rw__node_death_info__descriptor, f86, 2, true },
	{ &rw__actor_died_error_context__descriptor, f87, 12, true },
	{ &rw__actor_unschedulable_context__descriptor, f88, 1, true },
	{ &rw__oom_context__descriptor, f89, 2, true },
	{ &rw__actor_death_cause__descriptor, f90, 5, true },
	{ &rw__kill_local_actor_request__descriptor, f91, 4, true },
	{ &rw__cancel_local_task_request__descriptor, f92, 5, true },
	{ &rw__cancel_local_task_reply__descriptor, f93, 2, true },
	{ &rw__free_local_objects_request__descriptor, f94, 1, true },
	{ &rw__push_request__descriptor, f95, 8, true },
	{ &rw__pull_request__descriptor, f96, 2, true },
	{ &rw__free_objects_request__descriptor, NULL, 0, false },
	{ &rw__gcs_status__descriptor, f98, 2, true },
	{ &rw__get_cluster_id_reply__descriptor, f99, 2, true },
	{ &rw__node_snapshot__descriptor, f100, 3, true },
	{ &rw__gcs_node_info__descriptor, f101, 25, true },
	{ &rw__register_node_request__descriptor, f102, 1, true },
	{ &rw__register_node_reply__descriptor, f103, 1, true },
	{ &rw__unregister_node_request__descriptor, f104, 2, true },
	{ &rw__unregister_node_reply__descriptor, f105, 1, true },
	{ &rw__get_all_node_info_request__node_selector__descriptor, f106, 4, true },
	{ &rw__get_all_node_info_request__descriptor, f107, 3, true },
	{ &rw__get_all_node_info_reply__descriptor, f108, 4, true },
	{ &rw__get_internal_config_reply__descriptor, f109, 2, true },
	{ &rw__check_alive_request__descriptor, f110, 1, true },
	{ &rw__check_alive_reply__descriptor, f111, 4, true },
	{ &rw__get_all_node_address_and_liveness_request__descriptor, f112, 3, true },
	{ &rw__gcs_node_address_and_liveness__descriptor, f113, 6, true },
	{ &rw__get_all_node_address_and_liveness_reply__descriptor, f114, 2, true },
	{ &rw__internal_kvget_request__descriptor, f115, 2, true },
	{ &rw__internal_kvget_reply__descriptor, f116, 2, true },
	{ &rw__internal_kvput_request__descriptor, f117, 4, true },
	{ &rw__internal_kvput_reply__descriptor, f118, 2, true },
	{ &rw__job_table_data__descriptor, f119, 12, true },
	{ &rw__add_job_request__descriptor, f120, 1, true },
	{ &rw__add_job_reply__descriptor, f121, 1, true },
	{ &rw__mark_job_finished_request__descriptor, f122, 1, true },
	{ &rw__mark_job_finished_reply__descriptor, f123, 1, true },
	{ &rw__get_all_job_info_request__descriptor, f124, 4, true },
	{ &rw__get_all_job_info_reply__descriptor, f125, 2, true },
	{ &rw__worker_table_data__descriptor, f126, 17, true },
	{ &rw__report_worker_failure_request__descriptor, f127, 1, true },
	{ &rw__report_worker_failure_reply__descriptor, f128, 1, true },
	{ &rw__worker_object_locations_pub_message__descriptor, f129, 7, true },
	{ &rw__failure_message__descriptor, NULL, 0, true },
	{ &rw__worker_delta_data__descriptor, f131, 2, true },
	{ &rw__error_table_data__descriptor, f132, 4, true },
	{ &rw__worker_object_eviction_message__descriptor, NULL, 0, false },
	{ &rw__log_batch__descriptor, f134, 7, true },
	{ &rw__node_resource_usage__descriptor, f135, 1, true },
	{ &rw__pub_message__descriptor, f136, 14, true },
	{ &rw__gcs_subscriber_poll_request__descriptor, f137, 3, true },
	{ &rw__gcs_subscriber_poll_reply__descriptor, f138, 3, true },
	{ &rw__unsubscribe_message__descriptor, NULL, 0, true },
	{ &rw__worker_ref_removed_sub_message__descriptor, f140, 4, true },
	{ &rw__worker_object_locations_sub_message__descriptor, f141, 2, true },
	{ &rw__worker_object_eviction_sub_message__descriptor, NULL, 0, false },
	{ &rw__sub_message__descriptor, f143, 2, true },
	{ &rw__command__descriptor, f144, 4, true },
	{ &rw__gcs_subscriber_command_batch_request__descriptor, f145, 3, true },
	{ &rw__gcs_subscriber_command_batch_reply__descriptor, f146, 1, true },
	{ &rw__report_job_error_request__descriptor, f147, 1, true },
	{ &rw__report_job_error_reply__descriptor, f148, 1, true },
	{ &rw__autoscaler__drain_node_request__descriptor, f149, 4, true },
	{ &rw__autoscaler__drain_node_reply__descriptor, f150, 2, true },
	{ &rw__direct_actor_call_arg_wait_complete_request__descriptor, NULL, 0, false },
	{ &rw__ray_object__descriptor, f152, 3, true },
	{ &rw__pubsub_long_polling_request__descriptor, f153, 3, true },
	{ &rw__pubsub_long_polling_reply__descriptor, f154, 2, true },
	{ &rw__pubsub_command_batch_request__descriptor, f155, 2, true },
	{ &rw__object_spilled_location_update__descriptor, f156, 2, true },
	{ &rw__object_location_update__descriptor, f157, 4, true },
	{ &rw__update_object_location_batch_request__descriptor, f158, 3, true },
	{ &rw__kill_actor_request__descriptor, f159, 3, true },
	{ &rw__cancel_task_request__descriptor, f160, 4, true },
	{ &rw__cancel_task_reply__descriptor, f161, 2, true },
	{ &rw__get_core_worker_stats_request__descriptor, f162, 4, true },
	{ &rw__get_core_worker_stats_reply__descriptor, f163, 4, true },
	{ &rw__local_gcrequest__descriptor, NULL, 0, true },
	{ &rw__delete_objects_request__descriptor, NULL, 0, false },
	{ &rw__spill_objects_request__descriptor, f166, 1, true },
	{ &rw__spill_objects_reply__descriptor, f167, 1, true },
	{ &rw__restore_spilled_objects_request__descriptor, f168, 2, true },
	{ &rw__delete_spilled_objects_request__descriptor, f169, 1, true },
	{ &rw__plasma_object_ready_request__descriptor, f170, 1, true },
	{ &rw__exit_request__descriptor, f171, 1, true },
	{ &rw__exit_reply__descriptor, f172, 1, true },
	{ &rw__actor_call_arg_wait_complete_request__descriptor, f173, 3, true },
	{ &rw__syncer__ray_sync_message__descriptor, f174, 4, true },
	{ &rw__syncer__resource_view_sync_message__descriptor, f175, 8, true },
	{ &rw__syncer__commands_sync_message__descriptor, f176, 1, true },
	{ &rw__get_or_create_runtime_env_request__descriptor, f177, 4, true },
	{ &rw__get_or_create_runtime_env_reply__descriptor, f178, 3, true },
	{ &rw__delete_runtime_env_if_possible_request__descriptor, f179, 2, true },
	{ &rw__delete_runtime_env_if_possible_reply__descriptor, f180, 2, true },
	{ &rw__syncer__ray_sync_message_batch__descriptor, f181, 1, true },
	{ &rw__ray_error_info__descriptor, f182, 2, true },
	{ &rw__gcs_publish_request__descriptor, f183, 1, true },
	{ &rw__gcs_publish_reply__descriptor, f184, 1, true },
	{ &rw__list_logs_request__descriptor, f185, 1, true },
	{ &rw__list_logs_reply__descriptor, f186, 1, true },
	{ &rw__stream_log_request__descriptor, f187, 6, true },
	{ &rw__stream_log_reply__descriptor, f188, 1, true },
	{ &rw__get_traceback_request__descriptor, f189, 3, true },
	{ &rw__get_traceback_reply__descriptor, f190, 2, true },
	{ &rw__cpu_profiling_request__descriptor, f191, 6, true },
	{ &rw__cpu_profiling_reply__descriptor, f192, 2, true },
	{ &rw__memory_profiling_request__descriptor, f193, 6, true },
	{ &rw__memory_profiling_reply__descriptor, f194, 3, true },
	{ &rw__gpu_profiling_reply__descriptor, f195, 2, true },
	{ &rw__runtime_env_state__descriptor, f196, 5, true },
	{ &rw__get_runtime_envs_info_request__descriptor, f197, 1, true },
	{ &rw__get_runtime_envs_info_reply__descriptor, f198, 2, true },
};

static const rc__path methods[RC_M_COUNT] = {
	[RC_M_GET_CLUSTER_ID] = { "/ray.rpc.NodeInfoGcsService/GetClusterId", 40 },
	[RC_M_REGISTER_NODE] = { "/ray.rpc.NodeInfoGcsService/RegisterNode", 40 },
	[RC_M_UNREGISTER_NODE] = { "/ray.rpc.NodeInfoGcsService/UnregisterNode", 42 },
	[RC_M_GET_ALL_NODE_INFO] = { "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", 42 },
	[RC_M_GET_ALL_NODE_LIVENESS] = { "/ray.rpc.NodeInfoGcsService/GetAllNodeAddressAndLiveness", 56 },
	[RC_M_CHECK_ALIVE] = { "/ray.rpc.NodeInfoGcsService/CheckAlive", 38 },
	[RC_M_GET_INTERNAL_CONFIG] = { "/ray.rpc.InternalKVGcsService/GetInternalConfig", 47 },
	[RC_M_KV_GET] = { "/ray.rpc.InternalKVGcsService/InternalKVGet", 43 },
	[RC_M_KV_PUT] = { "/ray.rpc.InternalKVGcsService/InternalKVPut", 43 },
	[RC_M_ADD_JOB] = { "/ray.rpc.JobInfoGcsService/AddJob", 33 },
	[RC_M_MARK_JOB_FINISHED] = { "/ray.rpc.JobInfoGcsService/MarkJobFinished", 42 },
	[RC_M_GET_ALL_JOB_INFO] = { "/ray.rpc.JobInfoGcsService/GetAllJobInfo", 40 },
	[RC_M_REPORT_JOB_ERROR] = { "/ray.rpc.ObservabilityPubSubService/ReportJobError", 50 },
	[RC_M_REPORT_WORKER_FAILURE] = { "/ray.rpc.WorkerInfoGcsService/ReportWorkerFailure", 49 },
	[RC_M_GCS_POLL] = { "/ray.rpc.ControlPlanePubSubGcsService/GcsSubscriberPoll", 55 },
	[RC_M_GCS_COMMAND_BATCH] = { "/ray.rpc.ControlPlanePubSubGcsService/GcsSubscriberCommandBatch", 63 },
	[RC_M_GCS_PUBLISH] = { "/ray.rpc.ObservabilityPubSubService/GcsPublish", 46 },
	[RC_M_START_SYNC] = { "/ray.rpc.syncer.RaySyncer/StartSync", 35 },
	[RC_M_AUTOSCALER_DRAIN_NODE] = { "/ray.rpc.autoscaler.AutoscalerStateService/DrainNode", 52 },
	[RC_M_NOTIFY_GCS_RESTART] = { "/ray.rpc.NodeManagerService/NotifyGCSRestart", 44 },
	[RC_M_GET_RESOURCE_LOAD] = { "/ray.rpc.NodeManagerService/GetResourceLoad", 43 },
	[RC_M_CANCEL_LEASES_WITH_SHAPES] = { "/ray.rpc.NodeManagerService/CancelLeasesWithResourceShapes", 58 },
	[RC_M_REQUEST_WORKER_LEASE] = { "/ray.rpc.NodeManagerService/RequestWorkerLease", 46 },
	[RC_M_PRESTART_WORKERS] = { "/ray.rpc.NodeManagerService/PrestartWorkers", 43 },
	[RC_M_REPORT_WORKER_BACKLOG] = { "/ray.rpc.NodeManagerService/ReportWorkerBacklog", 47 },
	[RC_M_RETURN_WORKER] = { "/ray.rpc.NodeManagerService/ReturnWorkerLease", 45 },
	[RC_M_RELEASE_UNUSED_ACTOR_WORKERS] = { "/ray.rpc.NodeManagerService/ReleaseUnusedActorWorkers", 53 },
	[RC_M_SHUTDOWN_RAYLET] = { "/ray.rpc.NodeManagerService/ShutdownRaylet", 42 },
	[RC_M_DRAIN_RAYLET] = { "/ray.rpc.NodeManagerService/DrainRaylet", 39 },
	[RC_M_PREPARE_BUNDLES] = { "/ray.rpc.NodeManagerService/PrepareBundleResources", 50 },
	[RC_M_COMMIT_BUNDLES] = { "/ray.rpc.NodeManagerService/CommitBundleResources", 49 },
	[RC_M_REMOVE_PG_BUNDLES] = { "/ray.rpc.NodeManagerService/RemovePlacementGroupBundles", 55 },
	[RC_M_RESIZE_LOCAL_RESOURCES] = { "/ray.rpc.NodeManagerService/ResizeLocalResourceInstances", 56 },
	[RC_M_CANCEL_WORKER_LEASE] = { "/ray.rpc.NodeManagerService/CancelWorkerLease", 45 },
	[RC_M_PIN_OBJECT_IDS] = { "/ray.rpc.NodeManagerService/PinObjectIDs", 40 },
	[RC_M_GET_NODE_STATS] = { "/ray.rpc.NodeManagerService/GetNodeStats", 40 },
	[RC_M_GLOBAL_GC] = { "/ray.rpc.NodeManagerService/GlobalGC", 36 },
	[RC_M_FORMAT_GLOBAL_MEMORY_INFO] = { "/ray.rpc.NodeManagerService/FormatGlobalMemoryInfo", 50 },
	[RC_M_RELEASE_UNUSED_BUNDLES] = { "/ray.rpc.NodeManagerService/ReleaseUnusedBundles", 48 },
	[RC_M_GET_SYSTEM_CONFIG] = { "/ray.rpc.NodeManagerService/GetSystemConfig", 43 },
	[RC_M_GET_OBJECTS_INFO] = { "/ray.rpc.NodeManagerService/GetObjectsInfo", 42 },
	[RC_M_GET_FAILURE_CAUSE] = { "/ray.rpc.NodeManagerService/GetWorkerFailureCause", 49 },
	[RC_M_IS_LOCAL_WORKER_DEAD] = { "/ray.rpc.NodeManagerService/IsLocalWorkerDead", 45 },
	[RC_M_GET_WORKER_PIDS] = { "/ray.rpc.NodeManagerService/GetWorkerPIDs", 41 },
	[RC_M_GET_AGENT_PIDS] = { "/ray.rpc.NodeManagerService/GetAgentPIDs", 40 },
	[RC_M_KILL_LOCAL_ACTOR] = { "/ray.rpc.NodeManagerService/KillLocalActor", 42 },
	[RC_M_CANCEL_LOCAL_TASK] = { "/ray.rpc.NodeManagerService/CancelLocalTask", 43 },
	[RC_M_FREE_LOCAL_OBJECTS] = { "/ray.rpc.NodeManagerService/FreeLocalObjects", 44 },
	[RC_M_OM_PUSH] = { "/ray.rpc.ObjectManagerService/Push", 34 },
	[RC_M_OM_PULL] = { "/ray.rpc.ObjectManagerService/Pull", 34 },
	[RC_M_CW_EXIT] = { "/ray.rpc.CoreWorkerService/Exit", 31 },
	[RC_M_CW_KILL_ACTOR] = { "/ray.rpc.CoreWorkerService/KillActor", 36 },
	[RC_M_CW_CANCEL_TASK] = { "/ray.rpc.CoreWorkerService/CancelTask", 37 },
	[RC_M_CW_GET_STATS] = { "/ray.rpc.CoreWorkerService/GetCoreWorkerStats", 45 },
	[RC_M_CW_UPDATE_OBJECT_LOCATIONS] = { "/ray.rpc.CoreWorkerService/UpdateObjectLocationBatch", 52 },
	[RC_M_CW_POLL] = { "/ray.rpc.CoreWorkerService/PubsubLongPolling", 44 },
	[RC_M_CW_COMMAND_BATCH] = { "/ray.rpc.CoreWorkerService/PubsubCommandBatch", 45 },
	[RC_M_CW_PLASMA_OBJECT_READY] = { "/ray.rpc.CoreWorkerService/PlasmaObjectReady", 44 },
	[RC_M_CW_ACTOR_ARGS_READY] = { "/ray.rpc.CoreWorkerService/ActorCallArgWaitComplete", 51 },
	[RC_M_CW_SPILL_OBJECTS] = { "/ray.rpc.CoreWorkerService/SpillObjects", 39 },
	[RC_M_CW_RESTORE_SPILLED] = { "/ray.rpc.CoreWorkerService/RestoreSpilledObjects", 48 },
	[RC_M_CW_DELETE_SPILLED] = { "/ray.rpc.CoreWorkerService/DeleteSpilledObjects", 47 },
	[RC_M_CW_LOCAL_GC] = { "/ray.rpc.CoreWorkerService/LocalGC", 34 },
	[RC_M_CW_NOTIFY_GCS_RESTART] = { "/ray.rpc.CoreWorkerService/RayletNotifyGCSRestart", 49 },
	[RC_M_AGENT_LIST_LOGS] = { "/ray.rpc.LogService/ListLogs", 28 },
	[RC_M_AGENT_STREAM_LOG] = { "/ray.rpc.LogService/StreamLog", 29 },
	[RC_M_AGENT_TRACEBACK] = { "/ray.rpc.ReporterService/GetTraceback", 37 },
	[RC_M_AGENT_CPU_PROFILE] = { "/ray.rpc.ReporterService/CpuProfiling", 37 },
	[RC_M_AGENT_MEMORY_PROFILE] = { "/ray.rpc.ReporterService/MemoryProfiling", 40 },
	[RC_M_AGENT_GPU_PROFILE] = { "/ray.rpc.ReporterService/GpuProfiling", 37 },
	[RC_M_AGENT_JAX_PROFILE] = { "/ray.rpc.ReporterService/JaxProfiling", 37 },
	[RC_M_AGENT_HEALTH_CHECK] = { "/ray.rpc.ReporterService/HealthCheck", 36 },
};

static const int16_t enums[RC_V_COUNT] = {
	[RC_V_CHANNEL_OBJECT_EVICTION] = -1,
	[RC_V_CHANNEL_OBJECT_LOCATIONS] = 1,
	[RC_V_CHANNEL_JOB] = 3,
	[RC_V_CHANNEL_NODE_INFO] = 4,
	[RC_V_CHANNEL_WORKER_DELTA] = 5,
	[RC_V_CHANNEL_LOG] = 7,
	[RC_V_CHANNEL_NODE_USAGE] = 8,
	[RC_V_CHANNEL_NODE_LIVENESS] = 9,
	[RC_V_TASK_ACTOR_CREATION] = 1,
	[RC_V_FAILURE_SCHEDULING_RUNTIME_ENV] = 3,
	[RC_V_FAILURE_PG_REMOVED] = 2,
	[RC_V_FAILURE_UNSCHEDULABLE] = 5,
	[RC_V_FAILURE_INTENDED] = 4,
	[RC_V_FAILURE_FAILED] = 1,
	[RC_V_FAILURE_WORKER_STARTUP] = 6,
	[RC_V_EXIT_SYSTEM_ERROR] = 0,
	[RC_V_EXIT_INTENDED_SYSTEM] = 1,
	[RC_V_EXIT_USER_ERROR] = 2,
	[RC_V_EXIT_INTENDED_USER] = 3,
	[RC_V_EXIT_NODE_OUT_OF_MEMORY] = 4,
	[RC_V_NODE_ALIVE] = 0,
	[RC_V_NODE_DEAD] = 1,
	[RC_V_DEATH_EXPECTED] = 1,
	[RC_V_DEATH_UNEXPECTED] = 2,
	[RC_V_DEATH_AUTOSCALER_DRAIN] = 3,
	[RC_V_DEATH_AUTOSCALER_IDLE] = 4,
	[RC_V_DRAIN_IDLE] = 1,
	[RC_V_DRAIN_PREEMPTION] = 2,
	[RC_V_LOCATION_ADDED] = 0,
	[RC_V_LOCATION_REMOVED] = 1,
	[RC_V_SYNC_RESOURCE_VIEW] = 0,
	[RC_V_SYNC_COMMANDS] = 1,
	[RC_V_SNAPSHOT_ACTIVE] = 2,
	[RC_V_ERROR_OUT_OF_MEMORY] = 22,
	[RC_V_ERROR_OWNER_DIED] = 9,
	[RC_V_ERROR_OBJECT_DELETED] = 10,
	[RC_V_LABEL_IN] = 1,
	[RC_V_LABEL_NOT_IN] = 2,
	[RC_V_ERROR_FETCH_TIMED_OUT] = 14,
	[RC_V_ERROR_OUT_OF_DISK] = 20,
};

const rc_dialect rc__dialect_2_60_0 = {
	"2.60.0", messages, sizeof messages / sizeof *messages, methods, enums,
};
