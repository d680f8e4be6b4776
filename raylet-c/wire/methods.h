/* The RPC methods and enum values whose names or numbers differ between releases, under one name each. The paths and
 * numbers are in gen/. */
#ifndef RC_WIRE_METHODS_H
#define RC_WIRE_METHODS_H

/* X(our name, service and method by release: 2.35.0, 2.60.0). "-": absent, or there but not used. The generator checks each
 * against the wheel. */
#define RC_METHODS(X)                                                                                                      \
	/* called on the GCS */                                                                                               \
	X(GET_CLUSTER_ID, "NodeInfoGcsService/GetClusterId", "NodeInfoGcsService/GetClusterId")                                \
	X(REGISTER_NODE, "NodeInfoGcsService/RegisterNode", "NodeInfoGcsService/RegisterNode")                                 \
	X(UNREGISTER_NODE, "NodeInfoGcsService/UnregisterNode", "NodeInfoGcsService/UnregisterNode")                           \
	X(GET_ALL_NODE_INFO, "NodeInfoGcsService/GetAllNodeInfo", "NodeInfoGcsService/GetAllNodeInfo")                         \
	X(GET_ALL_NODE_LIVENESS, "-", "NodeInfoGcsService/GetAllNodeAddressAndLiveness")                                       \
	X(CHECK_ALIVE, "NodeInfoGcsService/CheckAlive", "NodeInfoGcsService/CheckAlive")                                       \
	X(GET_INTERNAL_CONFIG, "NodeInfoGcsService/GetInternalConfig", "InternalKVGcsService/GetInternalConfig")               \
	X(KV_GET, "InternalKVGcsService/InternalKVGet", "InternalKVGcsService/InternalKVGet")                                  \
	X(KV_PUT, "InternalKVGcsService/InternalKVPut", "InternalKVGcsService/InternalKVPut")                                  \
	X(ADD_JOB, "JobInfoGcsService/AddJob", "JobInfoGcsService/AddJob")                                                     \
	X(MARK_JOB_FINISHED, "JobInfoGcsService/MarkJobFinished", "JobInfoGcsService/MarkJobFinished")                         \
	X(GET_ALL_JOB_INFO, "JobInfoGcsService/GetAllJobInfo", "JobInfoGcsService/GetAllJobInfo")                              \
	X(REPORT_JOB_ERROR, "JobInfoGcsService/ReportJobError", "ObservabilityPubSubService/ReportJobError")                   \
	X(REPORT_WORKER_FAILURE, "WorkerInfoGcsService/ReportWorkerFailure", "WorkerInfoGcsService/ReportWorkerFailure")       \
	X(GCS_POLL, "InternalPubSubGcsService/GcsSubscriberPoll", "ControlPlanePubSubGcsService/GcsSubscriberPoll")            \
	X(GCS_COMMAND_BATCH, "InternalPubSubGcsService/GcsSubscriberCommandBatch",                                             \
	  "ControlPlanePubSubGcsService/GcsSubscriberCommandBatch")                                                            \
	/* log lines and node statistics */                                                                                    \
	X(GCS_PUBLISH, "InternalPubSubGcsService/GcsPublish", "ObservabilityPubSubService/GcsPublish")                         \
	X(START_SYNC, "syncer.RaySyncer/StartSync", "syncer.RaySyncer/StartSync")                                              \
	X(AUTOSCALER_DRAIN_NODE, "autoscaler.AutoscalerStateService/DrainNode", "autoscaler.AutoscalerStateService/DrainNode") \
	/* served by the raylet */                                                                                            \
	X(NOTIFY_GCS_RESTART, "NodeManagerService/NotifyGCSRestart", "NodeManagerService/NotifyGCSRestart")                    \
	X(GET_RESOURCE_LOAD, "NodeManagerService/GetResourceLoad", "NodeManagerService/GetResourceLoad")                       \
	X(CANCEL_LEASES_WITH_SHAPES, "-", "NodeManagerService/CancelLeasesWithResourceShapes")                                 \
	X(REQUEST_WORKER_LEASE, "NodeManagerService/RequestWorkerLease", "NodeManagerService/RequestWorkerLease")              \
	X(PRESTART_WORKERS, "-", "NodeManagerService/PrestartWorkers")                                                         \
	X(REPORT_WORKER_BACKLOG, "NodeManagerService/ReportWorkerBacklog", "NodeManagerService/ReportWorkerBacklog")           \
	X(RETURN_WORKER, "NodeManagerService/ReturnWorker", "NodeManagerService/ReturnWorkerLease")                            \
	X(RELEASE_UNUSED_ACTOR_WORKERS, "NodeManagerService/ReleaseUnusedActorWorkers",                                        \
	  "NodeManagerService/ReleaseUnusedActorWorkers")                                                                      \
	X(SHUTDOWN_RAYLET, "NodeManagerService/ShutdownRaylet", "NodeManagerService/ShutdownRaylet")                           \
	X(DRAIN_RAYLET, "NodeManagerService/DrainRaylet", "NodeManagerService/DrainRaylet")                                    \
	X(PREPARE_BUNDLES, "NodeManagerService/PrepareBundleResources", "NodeManagerService/PrepareBundleResources")           \
	X(COMMIT_BUNDLES, "NodeManagerService/CommitBundleResources", "NodeManagerService/CommitBundleResources")              \
	X(CANCEL_RESOURCE_RESERVE, "NodeManagerService/CancelResourceReserve", "-")                                            \
	X(REMOVE_PG_BUNDLES, "-", "NodeManagerService/RemovePlacementGroupBundles")                                            \
	X(RESIZE_LOCAL_RESOURCES, "-", "NodeManagerService/ResizeLocalResourceInstances")                                      \
	X(CANCEL_WORKER_LEASE, "NodeManagerService/CancelWorkerLease", "NodeManagerService/CancelWorkerLease")                 \
	X(PIN_OBJECT_IDS, "NodeManagerService/PinObjectIDs", "NodeManagerService/PinObjectIDs")                                \
	X(GET_NODE_STATS, "NodeManagerService/GetNodeStats", "NodeManagerService/GetNodeStats")                                \
	X(GLOBAL_GC, "NodeManagerService/GlobalGC", "NodeManagerService/GlobalGC")                                             \
	X(FORMAT_GLOBAL_MEMORY_INFO, "NodeManagerService/FormatGlobalMemoryInfo", "NodeManagerService/FormatGlobalMemoryInfo") \
	X(RELEASE_UNUSED_BUNDLES, "NodeManagerService/ReleaseUnusedBundles", "NodeManagerService/ReleaseUnusedBundles")        \
	X(GET_SYSTEM_CONFIG, "NodeManagerService/GetSystemConfig", "NodeManagerService/GetSystemConfig")                       \
	X(GET_TASKS_INFO, "NodeManagerService/GetTasksInfo", "-")                                                              \
	X(GET_OBJECTS_INFO, "NodeManagerService/GetObjectsInfo", "NodeManagerService/GetObjectsInfo")                          \
	X(GET_FAILURE_CAUSE, "NodeManagerService/GetTaskFailureCause", "NodeManagerService/GetWorkerFailureCause")             \
	X(IS_LOCAL_WORKER_DEAD, "-", "NodeManagerService/IsLocalWorkerDead")                                                   \
	X(GET_WORKER_PIDS, "-", "NodeManagerService/GetWorkerPIDs")                                                            \
	X(GET_AGENT_PIDS, "-", "NodeManagerService/GetAgentPIDs")                                                              \
	X(KILL_LOCAL_ACTOR, "-", "NodeManagerService/KillLocalActor")                                                          \
	X(CANCEL_LOCAL_TASK, "-", "NodeManagerService/CancelLocalTask")                                                        \
	X(FREE_LOCAL_OBJECTS, "-", "NodeManagerService/FreeLocalObjects")                                                      \
	X(OM_PUSH, "ObjectManagerService/Push", "ObjectManagerService/Push")                                                   \
	X(OM_PULL, "ObjectManagerService/Pull", "ObjectManagerService/Pull")                                                   \
	X(OM_FREE_OBJECTS, "ObjectManagerService/FreeObjects", "-")                                                            \
	/* called on core workers */                                                                                           \
	X(CW_EXIT, "CoreWorkerService/Exit", "CoreWorkerService/Exit")                                                         \
	X(CW_KILL_ACTOR, "CoreWorkerService/KillActor", "CoreWorkerService/KillActor")                                         \
	X(CW_CANCEL_TASK, "CoreWorkerService/CancelTask", "CoreWorkerService/CancelTask")                                      \
	X(CW_GET_STATS, "CoreWorkerService/GetCoreWorkerStats", "CoreWorkerService/GetCoreWorkerStats")                        \
	X(CW_UPDATE_OBJECT_LOCATIONS, "CoreWorkerService/UpdateObjectLocationBatch",                                           \
	  "CoreWorkerService/UpdateObjectLocationBatch")                                                                       \
	X(CW_POLL, "CoreWorkerService/PubsubLongPolling", "CoreWorkerService/PubsubLongPolling")                               \
	X(CW_COMMAND_BATCH, "CoreWorkerService/PubsubCommandBatch", "CoreWorkerService/PubsubCommandBatch")                    \
	X(CW_PLASMA_OBJECT_READY, "CoreWorkerService/PlasmaObjectReady", "CoreWorkerService/PlasmaObjectReady")                \
	X(CW_ACTOR_ARGS_READY, "CoreWorkerService/DirectActorCallArgWaitComplete",                                             \
	  "CoreWorkerService/ActorCallArgWaitComplete")                                                                        \
	X(CW_SPILL_OBJECTS, "CoreWorkerService/SpillObjects", "CoreWorkerService/SpillObjects")                                \
	X(CW_RESTORE_SPILLED, "CoreWorkerService/RestoreSpilledObjects", "CoreWorkerService/RestoreSpilledObjects")            \
	X(CW_DELETE_SPILLED, "CoreWorkerService/DeleteSpilledObjects", "CoreWorkerService/DeleteSpilledObjects")               \
	X(CW_LOCAL_GC, "CoreWorkerService/LocalGC", "CoreWorkerService/LocalGC")                                               \
	X(CW_NOTIFY_GCS_RESTART, "CoreWorkerService/RayletNotifyGCSRestart", "CoreWorkerService/RayletNotifyGCSRestart")       \
	/* called on the dashboard agent, or served by the native one */                                                      \
	X(AGENT_REPORT_METRICS, "ReporterService/ReportOCMetrics", "-")                                                        \
	X(AGENT_LIST_LOGS, "LogService/ListLogs", "LogService/ListLogs")                                                       \
	X(AGENT_STREAM_LOG, "LogService/StreamLog", "LogService/StreamLog")                                                    \
	X(AGENT_TRACEBACK, "ReporterService/GetTraceback", "ReporterService/GetTraceback")                                     \
	X(AGENT_CPU_PROFILE, "ReporterService/CpuProfiling", "ReporterService/CpuProfiling")                                   \
	X(AGENT_MEMORY_PROFILE, "ReporterService/MemoryProfiling", "ReporterService/MemoryProfiling")                          \
	X(AGENT_GPU_PROFILE, "-", "ReporterService/GpuProfiling")                                                              \
	X(AGENT_JAX_PROFILE, "-", "ReporterService/JaxProfiling")                                                              \
	X(AGENT_HEALTH_CHECK, "-", "ReporterService/HealthCheck")                                

typedef enum rc_method {
#define X(name, a, b) RC_M_##name,
	RC_METHODS(X)
#undef X
	RC_M_COUNT
} rc_method;

/* X(our name, Ray's enum, Ray's value name). The generator looks the number up in each release; absent: -1. Where releases
 * name one value differently, all are given, as "A|B": the first that exists counts. */
#define RC_ENUMS(X)                                                                            \
	X(CHANNEL_OBJECT_EVICTION, "ChannelType", "WORKER_OBJECT_EVICTION")                        \
	X(CHANNEL_OBJECT_LOCATIONS, "ChannelType", "WORKER_OBJECT_LOCATIONS_CHANNEL")              \
	X(CHANNEL_JOB, "ChannelType", "GCS_JOB_CHANNEL")                                           \
	X(CHANNEL_NODE_INFO, "ChannelType", "GCS_NODE_INFO_CHANNEL")                               \
	X(CHANNEL_WORKER_DELTA, "ChannelType", "GCS_WORKER_DELTA_CHANNEL")                         \
	X(CHANNEL_LOG, "ChannelType", "RAY_LOG_CHANNEL")                                           \
	X(CHANNEL_NODE_USAGE, "ChannelType", "RAY_NODE_RESOURCE_USAGE_CHANNEL")                    \
	X(CHANNEL_NODE_LIVENESS, "ChannelType", "GCS_NODE_ADDRESS_AND_LIVENESS_CHANNEL")           \
	X(TASK_ACTOR_CREATION, "TaskType", "ACTOR_CREATION_TASK")                                  \
	X(FAILURE_SCHEDULING_RUNTIME_ENV, "RequestWorkerLeaseReply.SchedulingFailureType",            \
	  "SCHEDULING_CANCELLED_RUNTIME_ENV_SETUP_FAILED")                                            \
	X(FAILURE_PG_REMOVED, "RequestWorkerLeaseReply.SchedulingFailureType",                        \
	  "SCHEDULING_CANCELLED_PLACEMENT_GROUP_REMOVED")                                             \
	X(FAILURE_UNSCHEDULABLE, "RequestWorkerLeaseReply.SchedulingFailureType",                     \
	  "SCHEDULING_CANCELLED_UNSCHEDULABLE")                                                       \
	X(FAILURE_INTENDED, "RequestWorkerLeaseReply.SchedulingFailureType",                          \
	  "SCHEDULING_CANCELLED_INTENDED")                                                            \
	X(FAILURE_FAILED, "RequestWorkerLeaseReply.SchedulingFailureType",                            \
	  "SCHEDULING_FAILED")                                                                        \
	X(FAILURE_WORKER_STARTUP, "RequestWorkerLeaseReply.SchedulingFailureType",                    \
	  "SCHEDULING_CANCELLED_WORKER_STARTUP_FAILED")                                               \
	X(EXIT_SYSTEM_ERROR, "WorkerExitType", "SYSTEM_ERROR")                                     \
	X(EXIT_INTENDED_SYSTEM, "WorkerExitType", "INTENDED_SYSTEM_EXIT")                          \
	X(EXIT_USER_ERROR, "WorkerExitType", "USER_ERROR")                                         \
	X(EXIT_INTENDED_USER, "WorkerExitType", "INTENDED_USER_EXIT")                              \
	X(EXIT_NODE_OUT_OF_MEMORY, "WorkerExitType", "NODE_OUT_OF_MEMORY")                         \
	X(NODE_ALIVE, "GcsNodeInfo.GcsNodeState", "ALIVE")                                         \
	X(NODE_DEAD, "GcsNodeInfo.GcsNodeState", "DEAD")                                           \
	X(DEATH_EXPECTED, "NodeDeathInfo.Reason", "EXPECTED_TERMINATION")                          \
	X(DEATH_UNEXPECTED, "NodeDeathInfo.Reason", "UNEXPECTED_TERMINATION")                      \
	X(DEATH_AUTOSCALER_DRAIN, "NodeDeathInfo.Reason", "AUTOSCALER_DRAIN_PREEMPTED")            \
	X(DEATH_AUTOSCALER_IDLE, "NodeDeathInfo.Reason", "AUTOSCALER_DRAIN_IDLE")                  \
	X(DRAIN_IDLE, "autoscaler.DrainNodeReason", "DRAIN_NODE_REASON_IDLE_TERMINATION")          \
	X(DRAIN_PREEMPTION, "autoscaler.DrainNodeReason", "DRAIN_NODE_REASON_PREEMPTION")          \
	X(LOCATION_ADDED, "ObjectPlasmaLocationUpdate", "ADDED")                                   \
	X(LOCATION_REMOVED, "ObjectPlasmaLocationUpdate", "REMOVED")                               \
	X(SYNC_RESOURCE_VIEW, "syncer.MessageType", "RESOURCE_VIEW")                               \
	X(SYNC_COMMANDS, "syncer.MessageType", "COMMANDS")                                         \
	X(SNAPSHOT_ACTIVE, "NodeSnapshot.State", "ACTIVE")                                         \
	X(ERROR_OUT_OF_MEMORY, "ErrorType", "OUT_OF_MEMORY")                                       \
	X(ERROR_OWNER_DIED, "ErrorType", "OWNER_DIED")                                             \
	X(ERROR_OBJECT_DELETED, "ErrorType", "OBJECT_DELETED")                                     \
	X(LABEL_IN, "LabelSelectorOperator", "LABEL_OPERATOR_IN")                                  \
	X(LABEL_NOT_IN, "LabelSelectorOperator", "LABEL_OPERATOR_NOT_IN")                          \
	X(ERROR_FETCH_TIMED_OUT, "ErrorType", "OBJECT_FETCH_TIMED_OUT")                           \
	X(ERROR_OUT_OF_DISK, "ErrorType", "OUT_OF_DISK_ERROR")

typedef enum rc_enum {
#define X(name, e, v) RC_V_##name,
	RC_ENUMS(X)
#undef X
	RC_V_COUNT
} rc_enum;

#endif
