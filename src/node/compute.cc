#include "node/compute.h"

#include <algorithm>
#include <thread>

#include "base/memory.h"
#include "tensor/runtime.h"
#include "train/plan.h"
#include "train/trainer.h"

namespace loom::node {

Result<Hash> ProbeInThread(const train::RunSpec& spec, const train::LocalConfig& local) {
  Result<Hash> probe = Hash{};
  std::thread([&] {
    const Status configured = ConfigureCompute(spec, local);
    probe = configured ? train::ProbeKernels(spec, local) : Result<Hash>(configured.error());
  }).join();
  return probe;
}

Status CheckDevice(const train::LocalConfig& local) {
  LOOM_ASSIGN(const tensor::Device device, tensor::ParseDevice(local.device));
  LOOM_RETURN_IF_ERROR(tensor::ResolveDevice(device));
  return {};
}

Status ConfigureCompute(const train::RunSpec& spec, const train::LocalConfig& local) {
  std::uint32_t threads = spec.determinism.threads != 0 ? spec.determinism.threads : local.threads;
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency() / 2);
  return tensor::ConfigureRuntime(
      {.threads = static_cast<int>(threads), .deterministic = spec.determinism.deterministic});
}

Status CheckMemory(const train::RunSpec& spec, const train::LocalConfig& local) {
  const train::PlanInput one_worker{.peers = std::max(1U, spec.sync.workers)};
  LOOM_ASSIGN(const train::RunPlan plan, train::PlanRun(spec, local, one_worker));
  const std::uint64_t available = AvailableMemory();
  if (plan.total - plan.base <= available) return {};
  return NoMemory(fmt::format("this run's {} parameters", plan.parameters), plan.total, available);
}

Status CheckKernels(const Run& run, const train::LocalConfig& local) {
  if (!run.spec.sync.exact) return {};
  LOOM_ASSIGN(const Hash probe, train::ProbeKernels(run.spec, local));
  if (probe == run.content.probe) return {};
  const tensor::RuntimeFacts facts = tensor::GetRuntimeFacts();
  return MakeError(
      Code::kRefused,
      fmt::format("this machine computes other gradients than the run's founder (hash {}, the run "
                  "has {}): libtorch {}, {} kernels, {}, {} threads",
                  probe.Short(), run.content.probe.Short(), facts.torch_version,
                  facts.cpu_capability, facts.blas, facts.threads),
      "exact mode needs equal kernels: use the same libtorch, device and compute type, or let the "
      "founder begin a run with exact = false");
}

}  // namespace loom::node
