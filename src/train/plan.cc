// Sizes of the buffers that the layers below really allocate, and the traffic of a balanced reduce:
// 2 (M-1)/M payloads each way.
#include "train/plan.h"

#include <algorithm>

#include "codec/codec.h"
#include "collab/exact.h"
#include "collab/method.h"

namespace loom::train {
namespace {

/// Measured with a tiny model: mostly libtorch's relocated data and its operators' registry.
constexpr std::uint64_t kBaseBytes = 85'000'000;

/// Own contributions, those of others that are combined here, the result of the reduce, and what is
/// on its way: what waits for its turn there takes nothing of its own.
std::uint64_t EncodedBytes(std::uint64_t own, std::uint64_t payload, std::uint64_t peers) {
  const std::uint64_t part = own / peers;
  return own + (peers - 1) * (part + std::min(part, kLinkQueueBytes)) + payload;
}

/// In exact mode a host sends one sum of all its units, of several in int64; the founder begins
/// with all of them.
std::uint64_t EncodedBytes(const RunSpec& spec, const RunPlan& plan, std::uint64_t peers) {
  if (!spec.sync.exact) return EncodedBytes(plan.hosted * plan.payload, plan.payload, peers);
  const auto sum = [&](std::uint64_t hosted) {
    return (hosted * spec.sync.accumulation > 1 ? collab::kWide : 1) * plan.payload;
  };
  return std::max(EncodedBytes(sum(plan.hosted), plan.payload, peers),
                  EncodedBytes(sum(spec.sync.workers), plan.payload, 1));
}

}  // namespace

Result<RunPlan> PlanRun(const RunSpec& spec, const LocalConfig& local, const PlanInput& input) {
  model::ModelConfig config = spec.model;
  if (config.vocab == 0) config.vocab = 256;
  LOOM_RETURN_IF_ERROR(model::Validate(config));
  LOOM_ASSIGN(const auto grid,
              agreed::TileGrid::Make(model::ParameterShapes(config), spec.sync.tile_elements));
  LOOM_ASSIGN(const auto kind, codec::ParseCodec(spec.sync.codec));
  const auto codec = codec::MakeCodec(kind);

  RunPlan plan;
  const std::uint64_t flat = grid.flat_size() * sizeof(float);
  plan.parameters = grid.num_elements();
  const std::uint64_t peers = std::max(1U, input.peers);
  const std::uint64_t workers = spec.sync.workers == 0 ? peers : spec.sync.workers;
  plan.hosted = (workers + peers - 1) / peers;
  const bool local_steps = spec.sync.method == collab::Method::kDiloco;
  const bool lossy = kind != codec::CodecKind::kFp32;
  LOOM_ASSIGN(const auto frozen, agreed::TileGrid::Make(model::FrozenShapes(config)));
  plan.frozen = frozen.num_elements();
  plan.weights = flat + frozen.flat_size() * sizeof(float);
  // With a lossy codec each worker trains in a buffer of its own, else all in one.
  if (local_steps) plan.weights += (lossy ? plan.hosted : 1) * flat;
  if (local.compute == "bf16") plan.weights += (flat + frozen.flat_size() * sizeof(float)) / 2;
  plan.gradients = !local_steps && lossy ? plan.hosted * flat : flat;
  plan.inner = local_steps ? plan.hosted * optim::InnerBytes(grid, spec.optim.inner) : 0;
  plan.outer =
      flat * collab::MakeStepRule(spec.sync)->num_slots() + (lossy ? plan.hosted * flat : 0);
  for (const auto& tile : grid.tiles()) plan.payload += codec->EncodedSize(tile.size);
  plan.encoded = EncodedBytes(spec, plan, peers);
  plan.activations =
      model::ActivationBytes(config, {.batch = spec.sync.batch / spec.optim.accumulation,
                                      .length = config.context,
                                      .bf16 = local.compute == "bf16",
                                      .checkpointing = local.checkpointing});
  plan.base = kBaseBytes;
  plan.total = plan.weights + plan.gradients + plan.inner + plan.outer + plan.encoded +
               plan.activations + plan.base;

  plan.bytes_up_per_round = peers < 2 ? 0 : 2 * (peers - 1) * plan.payload / peers;
  plan.bytes_down_per_round = plan.bytes_up_per_round;
  const std::uint64_t per_worker = spec.sync.inner_steps * TokensPerStep(spec);
  plan.tokens_per_round = workers * per_worker;
  if (input.tokens_per_second > 0) {
    double seconds = static_cast<double>(plan.hosted * per_worker) / input.tokens_per_second;
    if (input.link_up > 0) seconds += static_cast<double>(plan.bytes_up_per_round) / input.link_up;
    if (input.link_down > 0)
      seconds += static_cast<double>(plan.bytes_down_per_round) / input.link_down;
    plan.seconds_per_round = seconds;
    plan.eta_s = seconds * static_cast<double>(spec.sync.rounds);
  }
  return plan;
}

}  // namespace loom::train
