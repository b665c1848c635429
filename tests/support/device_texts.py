"""Texts of mlx 0.32's exceptions for devices, with the status and reason that a host gets.

Metal's come from mlx/backend/metal, with what MTLCommandBufferError's descriptions say; CUDA's from
mlx/backend/cuda, with what cudaGetErrorString says.
"""

from __future__ import annotations

BUFFER = "[METAL] Command buffer execution failed: "
CALLBACK = "kIOGPUCommandBufferCallbackError"

SHORTAGES = [
    "[metal::malloc] Attempting to allocate 42949672960 bytes which is greater than the maximum "
    "allowed buffer size of 28991029248 bytes.",
    "[metal::malloc] Resource limit (499000) exceeded.",
    "[malloc] Unable to allocate 42949672960 bytes.",
    "[metal::CommandEncoder] Failed to make new command queue.",
    "[metal::Device] Unable to construct residency set.\nno memory\n",
    "[Event::Event] Failed to create Metal shared event.",
    f"{BUFFER}Insufficient Memory (00000008:{CALLBACK}OutOfMemory).",
    "cudaMallocAsync(&data, size, stream) failed: out of memory",
    "cudaMallocManaged(&data, size) failed: out of memory",
    "cudaGraphInstantiate(&handle_, graph, flags) failed: out of memory",
    "cublasLtMatmul(handle_, desc, alpha) failed with code: 3.",
    "cublasLtCreate(&storage.handle) failed with code: 1.",
    "cufftMakePlanMany64(plan, rank) failed with code: 2.",
    "graph.build() failed: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED.",
]
LOST = [
    f"{BUFFER}Caused GPU Timeout Error (00000002:{CALLBACK}Timeout).",
    f"{BUFFER}Caused GPU Hang Error (00000003:{CALLBACK}Hang).",
    f"{BUFFER}Caused GPU Address Fault Error (0000000b:{CALLBACK}PageFault).",
    f"{BUFFER}Ignored (for causing prior/excessive GPU errors) "
    f"(00000004:{CALLBACK}SubmissionsIgnored).",
    f"{BUFFER}Discarded (victim of GPU error/recovery) (00000005:{CALLBACK}InnocentVictim).",
    f"{BUFFER}Impacting Interactivity (0000000e:{CALLBACK}ImpactingInteractivity).",
    f"{BUFFER}Internal Error (0000000e:Internal Error).",
    "cudaStreamSynchronize(stream_) failed: an illegal memory access was encountered",
    "cudaGetLastError() failed: an illegal memory access was encountered",
    "cudaGraphLaunch(graph_exec, stream()) failed: unspecified launch failure",
    "cudaEventSynchronize(handle_) failed: the launch timed out and was terminated",
    "cudaPeekAtLastError() failed: device-side assert triggered",
    "cuLaunchKernelEx(&config, func, params, nullptr) failed: misaligned address",
    "cudaStreamSynchronize(stream_) failed: uncorrectable ECC error encountered",
]
MISSING = [
    "[metal::load_device] No Metal device available. This typically occurs in headless, sandboxed, "
    "or virtualized macOS sessions where the GPU is not accessible.",
    "[gpu::eval] GPU backend is not available",
    "cudaGetDeviceCount(&count) failed: no CUDA-capable device is detected",
    "cudaMemGetInfo(&free, &total_memory_) failed: CUDA driver version is insufficient for CUDA "
    "runtime version",
]
FAILURES = [
    *((text, "ENOMEM", "no_memory") for text in SHORTAGES),
    *((text, "ELOST", "device_lost") for text in LOST),
    *((text, "EUNSUPPORTED", "device_missing") for text in MISSING),
]
# Bugs, which no shortage explains.
BUGS = [
    "There is no Stream(gpu, 3) in current thread.",
    "Failed to load the default metallib. library not found",
    "[metal::Device] Unable to load kernel steel_gemm\nCompiler encountered an internal error",
    "cudaGraphAddKernelNode(&node) failed: invalid argument",
    "the layer said: [METAL] Command buffer execution failed: Insufficient Memory",
]
