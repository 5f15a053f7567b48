// The global switches of libtorch, set once by the compute thread; see runtime.h.
#include "tensor/runtime.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/version.h>

namespace loom::tensor {
namespace {

constexpr int kMaxThreads = 256;

bool UsableCuda() {
  try {
    return at::hasCUDA();
  } catch (const std::exception&) {
    return false;
  }
}

std::string BlasName() {
  const std::string config = at::show_config();
  for (const std::string_view key : {"BLAS_INFO=", "BLAS="}) {
    const std::size_t at = config.find(key);
    if (at == std::string::npos) continue;
    const std::size_t begin = at + key.size();
    return config.substr(begin, config.find_first_of(", \n", begin) - begin);
  }
  return "unknown";
}

// Debian's libtorch multiplies with OpenBLAS, whose own threads at::set_num_threads does not reach:
// they are as many as processors, and spin. Another BLAS has no such function.
void SetBlasThreads(int threads) {
  using SetThreads = void (*)(int);
  if (void* found = ::dlsym(RTLD_DEFAULT, "openblas_set_num_threads"))
    reinterpret_cast<SetThreads>(found)(threads);
}

}  // namespace

Result<Device> ParseDevice(std::string_view name) {
  if (name == "auto") return Device::kAuto;
  if (name == "cpu") return Device::kCpu;
  if (name == "cuda") return Device::kCuda;
  return MakeError(Code::kInvalid, fmt::format("device \"{:.40}\" is not known", name),
                   "devices: auto, cpu, cuda");
}

std::string_view DeviceName(Device device) {
  switch (device) {
    case Device::kAuto:
      return "auto";
    case Device::kCpu:
      return "cpu";
    case Device::kCuda:
      return "cuda";
  }
  return "?";
}

Result<Device> ResolveDevice(Device wanted) {
  if (wanted == Device::kCpu) return Device::kCpu;
  if (UsableCuda()) return Device::kCuda;
  if (wanted == Device::kAuto) return Device::kCpu;
  return MakeError(Code::kNotFound,
                   "device \"cuda\": libtorch finds no usable GPU (or is a CPU build)",
                   "use device \"auto\" or \"cpu\", or see `loom doctor`");
}

Result<ComputeType> ParseComputeType(std::string_view name) {
  if (name == "fp32") return ComputeType::kFp32;
  if (name == "bf16") return ComputeType::kBf16;
  return MakeError(Code::kInvalid, fmt::format("compute type \"{:.40}\" is not known", name),
                   "compute types: fp32, bf16");
}

std::string_view ComputeTypeName(ComputeType type) {
  return type == ComputeType::kFp32 ? "fp32" : "bf16";
}

Status ConfigureRuntime(const RuntimeConfig& config) {
  if (config.threads < 1 || config.threads > kMaxThreads) {
    return MakeError(Code::kInvalid, fmt::format("threads is {}, allowed are 1 to {}",
                                                 config.threads, kMaxThreads));
  }
  try {
    at::set_num_threads(config.threads);
    SetBlasThreads(config.threads);
    at::globalContext().setDeterministicAlgorithms(config.deterministic, false);
    // Otherwise deterministic mode fills every new tensor with NaN first.
    at::globalContext().setDeterministicFillUninitializedMemory(false);
  } catch (const std::exception& e) {
    return MakeError(Code::kInternal, fmt::format("libtorch set-up: {}", e.what()));
  }
  return {};
}

RuntimeFacts GetRuntimeFacts() {
  RuntimeFacts facts;
  facts.torch_version = TORCH_VERSION;
  facts.cpu_capability = at::get_cpu_capability();
  facts.blas = BlasName();
  facts.threads = at::get_num_threads();
  facts.deterministic = at::globalContext().deterministicAlgorithms();
  facts.cuda = UsableCuda();
  return facts;
}

float MultiplySquares(std::int64_t n, int times) {
  const at::Tensor ones_NN = at::ones({n, n}, at::kFloat);
  at::Tensor product_NN = at::empty_like(ones_NN);
  for (int i = 0; i < times; ++i) at::mm_out(product_NN, ones_NN, ones_NN);
  return times > 0 ? product_NN[0][0].item<float>() : 0.0F;
}

}  // namespace loom::tensor
