"""The recorded series: ``level:metric:operations``. Alerts, dashboards and tests name them from here.

The level lists the labels that are left. ``namespace`` is the workload's; a level that begins with ``workload`` has
``namespace`` and ``workload``.
"""

from __future__ import annotations

# Levels as they are written in `by (...)` and `on (...)`.
WORKLOAD = "namespace, workload"
MODEL = "namespace, workload, model_name"
OBJECTIVE = "namespace, workload, objective"
BOUND = "namespace, workload, objective, bound"
CODE = "namespace, workload, code"
REPLICA = "namespace, workload, replica"
POD = "namespace, workload, pod"
GPU = "namespace, workload, pod, UUID, GPU_I_ID"

# loadtide's own, one for each workload however many scalers tell it.
ENGINE_INFO = "workload:engine_info:max"
OBJECTIVE_SECONDS = "workload_objective:objective_seconds:max"
GPU_FREE_EMERGENCY = "workload:gpu_free_emergency_ratio:max"
DESIRED = "workload:desired_replicas:max"
NEEDED = "workload:needed_replicas:max"
CEILING = "workload:replicas_ceiling:max"
OWN_READY = "workload:ready_replicas:max"
BUDGET = "workload:budget_gpu_hours:max"
BUDGET_SPENT = "workload:budget_spent_gpu_hours:max"
BUDGET_RESERVED = "workload:budget_reserved_gpu_hours:max"
TARGET_BATCH = "workload:target_batch_size:max"
APPLIED_BATCH = "workload_replica:applied_batch_size:max"
FAILED_LOADS = "workload:failed_loads:max"
LOADING = "workload:loading_seconds:max"
ASLEEP = "workload:asleep_replicas:max"
CALLED_AWAKE = "workload:rung_awake:max"
HELD_BACK = "workload_code:held_back:max"
INFEASIBLE = "workload_objective_bound:infeasible:max"
EMPTY_P95 = "workload_objective:empty_replica_seconds:max"
SIGNAL = "workload_signal:signal:max"
SIGNALS_LOST = "workload:signals_lost:count"
WAKE_SIGNALS_LOST = "workload:wake_signals_lost:count"
SOURCE_FAILING = "workload_source_endpoint:source_failing:max"
OWN_P95 = "workload_objective:latency_seconds:p95"
DEMAND = "workload:waiting_demand:sum"
SCALER_KNOWN = "namespace:scaler_known:count"
SCALER_HEALTHY = "namespace:scaler_healthy:count"
STORE_UP = "namespace:store_up:min"

# Engines, each engine's under the same names.
BUCKETS_5M = "workload_model_name_objective:latency_seconds_bucket:increase5m"
BUCKETS_1H = "workload_model_name_objective:latency_seconds_bucket:increase1h"
REQUESTS = "workload_model_name:requests:rate5m"
RUNNING = "workload_pod:requests_running:sum"
WAITING = "workload_pod:requests_waiting:sum"
PROGRESS = "workload_pod:progress:increase2m"
KV_USE = "workload_model_name:kv_cache_use_ratio:max"
PREEMPTIONS = "workload_model_name:preemptions:rate5m"

# GPUs.
GPU_MEMORY = "workload_pod_gpu:memory_mebibytes:total"
GPU_USED = "workload_pod_gpu:memory_used_ratio:max"
GPU_FREE = "workload_pod_gpu:memory_free_ratio:min"
GPU_XID = "gpu:xid_errors:max"
GPU_HELD = "workload_gpu:held:max"

# kube-state-metrics.
KUBE_SEEN = "cluster:kube_state_metrics:count"
KUBE_READY = "workload:kube_ready_replicas:max"
RESTARTS = "workload_pod:container_restarts:increase10m"
OUT_OF_MEMORY = "workload_pod:container_out_of_memory:max"

# Compared by alerts: engines' series where Prometheus has them, else what loadtide measured itself.
LATENCY_P95 = "workload_model_name_objective:latency_seconds:p95"
BEYOND_BUCKETS = "workload_model_name_objective:requests_beyond_buckets:ratio5m"
STALLED = "workload_pod:stalled:2m"
VRAM_FREE = "workload:gpu_memory_free_ratio:min"
VRAM_SERVING = "workload_pod_gpu:memory_used_ratio:serving"
VRAM_BASELINE = "workload_pod_gpu:memory_used_ratio:min1d"
VRAM_GROWTH = "workload_pod_gpu:memory_growth_ratio:over1d"
KV = "workload_model_name:kv_cache_use_ratio:now"
KV_PREEMPTIONS = "workload_model_name:preemptions_per_second:now"
READY = "workload:ready_replicas:now"
