// Windows of one length are computed together; the short one at the end, if any, alone.
#include "train/evaluate.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "data/sampler.h"

namespace loom::train {
namespace {

/// Enough for whole matrix products; an evaluation beside a run must not take more memory than the
/// run's own steps.
constexpr std::size_t kTokensAtOnce = 1024;

}  // namespace

Result<model::LossSum> EvaluateLoss(model::Model& model, const data::TokenStream& stream,
                                    const std::atomic<bool>& cut) {
  if (stream.size() < 2) {
    return MakeError(Code::kInvalid,
                     fmt::format("a loss needs at least 2 tokens, there are {}", stream.size()),
                     "check the path, or val_fraction in [data]");
  }
  const data::EvalWindows windows(stream.size(), model.config().context);
  const std::size_t most = std::max<std::size_t>(1, kTokensAtOnce / model.config().context);
  model::LossSum total;
  std::vector<std::int32_t> tokens;
  for (std::uint64_t at = 0; at < windows.size();) {
    if (cut.load(std::memory_order_relaxed)) {
      return MakeError(Code::kRefused, fmt::format("interrupted after {} of {} tokens",
                                                   total.tokens, stream.size()));
    }
    const std::uint32_t targets = windows[at].targets;
    std::size_t rows = 0;
    tokens.clear();
    while (rows < most && at < windows.size() && windows[at].targets == targets) {
      tokens.resize(tokens.size() + targets + 1);
      stream.Read(windows[at].start, std::span(tokens).last(std::size_t{targets} + 1));
      ++rows;
      ++at;
    }
    LOOM_ASSIGN(const model::LossSum part, model.Loss(tokens, rows, targets));
    total.nll += part.nll;
    total.tokens += part.tokens;
  }
  return total;
}

Result<model::LossSum> EvaluateLoss(const RunSpec& spec, const LocalConfig& local,
                                    const agreed::TileGrid& grid, std::span<float> weights,
                                    const data::TokenStream& stream, const std::atomic<bool>& cut) {
  model::ModelOptions options;
  LOOM_ASSIGN(options.device, tensor::ParseDevice(local.device));
  LOOM_ASSIGN(const auto network, model::Model::Create(spec.model, grid, options, weights, {}));
  return EvaluateLoss(*network, stream, cut);
}

}  // namespace loom::train
