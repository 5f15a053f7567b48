// Windows of one length are computed together; the short one at the end, if any, alone.
#include "train/evaluate.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <vector>

#include "data/sampler.h"

namespace loom::train {
namespace {

/// Enough for whole matrix products; an evaluation beside a run must not take more memory than the
/// run's own steps.
constexpr std::size_t kTokensAtOnce = 1024;

}  // namespace

Result<model::LossSum> EvaluateLoss(model::Model& model, const data::TokenStream& stream,
                                    const std::atomic<bool>& cut,
                                    const EvaluateProgress& progress) {
  if (stream.size() < 2) {
    return MakeError(Code::kInvalid,
                     fmt::format("a loss needs at least 2 tokens, there are {}", stream.size()),
                     "check the path, or val_fraction in [data]");
  }
  const data::EvalWindows windows(stream.size(), model.config().context);
  const std::size_t most = std::max<std::size_t>(1, kTokensAtOnce / model.config().context);
  model::LossSum total;
  std::vector<std::int32_t> inputs, targets;
  for (std::uint64_t at = 0; at < windows.size();) {
    if (cut.load(std::memory_order_relaxed)) {
      return MakeError(Code::kRefused, fmt::format("interrupted after {} of {} tokens",
                                                   total.tokens, stream.size()));
    }
    const std::size_t length = windows[at].targets;
    std::size_t rows = 0;
    inputs.clear();
    targets.clear();
    while (rows < most && at < windows.size() && windows[at].targets == length) {
      inputs.resize(inputs.size() + length);
      targets.resize(inputs.size());
      stream.Read(windows[at].start, std::span(inputs).last(length));
      stream.ReadTargets(windows[at].start + 1, std::span(targets).last(length));
      ++rows;
      ++at;
    }
    LOOM_ASSIGN(const model::LossSum part, model.Loss(model::Batch{inputs, targets, rows, length}));
    total.nll += part.nll;
    total.tokens += part.tokens;
    if (progress) progress(at < windows.size() ? windows[at].start : stream.size(), stream.size());
  }
  if (total.tokens == 0) {
    return MakeError(Code::kInvalid,
                     fmt::format("a loss is taken on none of these {} tokens", stream.size()),
                     "use a longer text, or a larger val_fraction in [data]");
  }
  return total;
}

Result<model::LossSum> EvaluateLoss(const RunSpec& spec, const LocalConfig& local,
                                    const agreed::TileGrid& grid, std::span<float> weights,
                                    const FrozenWeights& frozen, const data::TokenStream& stream,
                                    const std::atomic<bool>& cut,
                                    const EvaluateProgress& progress) {
  model::ModelOptions options;
  LOOM_ASSIGN(options.device, tensor::ParseDevice(local.device));
  LOOM_ASSIGN(const auto network,
              model::Model::Create(spec.model, grid, options, weights, {}, SpanOf(frozen)));
  return EvaluateLoss(*network, stream, cut, progress);
}

std::uint64_t TargetBytes(const data::Tokenizer& tokenizer, const data::TokenStream& stream) {
  std::vector<std::uint64_t> counts(tokenizer.vocab_size());
  std::array<std::int32_t, 4096> ids{};
  for (std::uint64_t at = 1; at < stream.size(); at += ids.size()) {
    const std::span part(ids.data(), std::min<std::uint64_t>(ids.size(), stream.size() - at));
    stream.ReadTargets(at, part);
    for (const std::int32_t id : part) {
      if (id >= 0 && static_cast<std::size_t>(id) < counts.size())
        ++counts[static_cast<std::size_t>(id)];
    }
  }
  std::uint64_t bytes = 0;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] == 0) continue;
    const auto token = static_cast<std::int32_t>(id);
    bytes += counts[id] * tokenizer.Decode({&token, 1}).size();
  }
  return bytes;
}

}  // namespace loom::train
