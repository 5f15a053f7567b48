// Sizes of the buffers that the layers below really allocate, and the traffic of a balanced reduce:
// 2 (M-1)/M payloads each way.
#include "train/plan.h"

#include "codec/codec.h"
#include "collab/method.h"

namespace loom::train {

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
  const bool local_steps = spec.sync.method == collab::Method::kDiloco;
  plan.weights = 2 * flat;
  plan.gradients = flat;
  plan.inner = local_steps ? optim::InnerBytes(grid, spec.optim.inner) : 0;
  plan.outer = flat * collab::MakeStepRule(spec.sync)->num_slots() +
               (kind == codec::CodecKind::kFp32 ? 0 : flat);
  for (const auto& tile : grid.tiles()) plan.payload += codec->EncodedSize(tile.size);
  plan.encoded = 2 * plan.payload;
  // A sum of several units is kept and sent in int64.
  if (spec.sync.exact && collab::NumUnits(spec.sync) > 1) plan.encoded += 2 * flat + plan.payload;
  plan.activations =
      model::ActivationBytes(config, {.batch = spec.sync.batch / spec.optim.accumulation,
                                      .length = config.context,
                                      .bf16 = local.compute == "bf16",
                                      .checkpointing = local.checkpointing});
  plan.total =
      plan.weights + plan.gradients + plan.inner + plan.outer + plan.encoded + plan.activations;

  const std::uint64_t peers = input.peers;
  plan.bytes_up_per_round = peers < 2 ? 0 : 2 * (peers - 1) * plan.payload / peers;
  plan.bytes_down_per_round = plan.bytes_up_per_round;
  const std::uint64_t workers = spec.sync.workers == 0 ? peers : spec.sync.workers;
  const std::uint64_t per_worker = spec.sync.inner_steps * TokensPerStep(spec);
  plan.tokens_per_round = workers * per_worker;
  if (input.tokens_per_second > 0) {
    const auto hosted = static_cast<double>((workers + peers - 1) / peers);
    double seconds = hosted * static_cast<double>(per_worker) / input.tokens_per_second;
    if (input.link_up > 0) seconds += static_cast<double>(plan.bytes_up_per_round) / input.link_up;
    if (input.link_down > 0)
      seconds += static_cast<double>(plan.bytes_down_per_round) / input.link_down;
    plan.seconds_per_round = seconds;
    plan.eta_s = seconds * static_cast<double>(spec.sync.rounds);
  }
  return plan;
}

}  // namespace loom::train
