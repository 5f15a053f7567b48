// How libtorch runs in this process: device, threads, deterministic algorithms, and the facts that
// a determinism section records (version, CPU kernel path, BLAS). No libtorch type is visible.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace loom::tensor {

enum class Device : std::uint8_t {
  kAuto,  ///< CUDA when a usable one is there, else the CPU
  kCpu,
  kCuda,
};
Result<Device> ParseDevice(std::string_view name);  ///< "auto", "cpu", "cuda"
std::string_view DeviceName(Device device);
/// kCpu or kCuda; an error says why kCuda cannot be had.
Result<Device> ResolveDevice(Device wanted);

enum class ComputeType : std::uint8_t { kFp32, kBf16 };
Result<ComputeType> ParseComputeType(std::string_view name);  ///< "fp32", "bf16"
std::string_view ComputeTypeName(ComputeType type);

struct RuntimeConfig {
  int threads = 1;            ///< intra-operator threads of the calling thread; 1..256
  bool deterministic = true;  ///< same inputs and thread count, same bits
};
/// Sets threads and algorithms for the calling thread's operators. Call it on the compute thread
/// before its first operator (OpenMP and MKL keep thread counts per calling thread).
/// With deterministic set, a run is bit-identical to another with the same thread count, the same
/// RuntimeFacts and the same CPU; a different thread count may give other bits.
Status ConfigureRuntime(const RuntimeConfig& config);

/// What decides the bits of an operator on this machine.
struct RuntimeFacts {
  std::string torch_version;
  std::string cpu_capability;  ///< ATen's path in use: "default", "avx2", "avx512", ...
  std::string blas;            ///< e.g. "mkl", "openblas", "blas" (unknown), "none"
  int threads = 0;
  bool deterministic = false;
  bool cuda = false;  ///< a CUDA device is usable
};
RuntimeFacts GetRuntimeFacts();

/// fp32 [n, n] times [n, n] on the CPU, `times` times over, for `loom doctor` to time. The last
/// product's first element, which is n.
float MultiplySquares(std::int64_t n, int times);

}  // namespace loom::tensor
