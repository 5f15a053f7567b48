#include "sim/plain_worker.h"

#include <algorithm>
#include <cmath>

#include "agreed/combine.h"

namespace loom::sim {

float NoiseAt(std::uint64_t a, std::uint64_t b) {
  std::uint64_t z = a * 0x9E3779B97F4A7C15ULL ^ (b + 0x7F4A7C15ULL) * 0xBF58476D1CE4E5B9ULL;
  z ^= z >> 29U;
  z *= 0x94D049BB133111EBULL;
  return static_cast<float>(static_cast<std::int64_t>(z) >> 40) * 0x1p-23F;
}

namespace {

std::vector<std::uint64_t> SamplesOf(const collab::WorkOrder& order) {
  std::vector<std::uint64_t> samples;
  for (const collab::Range& r : order.ranges) {
    for (std::uint64_t s = r.first; s <= r.last; ++s) samples.push_back(s);
  }
  return samples;
}

}  // namespace

PlainWorker::PlainWorker(const agreed::TileGrid& grid, const PlainModel& model,
                         const std::uint32_t* step_limit)
    : grid_(&grid),
      model_(model),
      step_limit_(step_limit),
      velocity_(grid.flat_size()),
      gradient_(grid.flat_size()) {}

double PlainWorker::AddGradient(std::span<const std::uint64_t> samples,
                                std::span<const float> theta, std::span<float> gradient,
                                float scale) const {
  constexpr std::uint64_t kAlike = 8;  // elements that see the same noise of a sample
  double loss = 0;
  for (const std::uint64_t sample : samples) {
    const float size = sample != 0 && sample == model_.burst ? 0x1p40F * scale : scale;
    for (const agreed::Tile& tile : grid_->tiles()) {
      float noise = 0;
      for (std::uint64_t i = tile.offset; i < tile.offset + tile.size; ++i) {
        if (i % kAlike == 0) noise = 0.25F * NoiseAt(sample + 2, i);
        const float d = theta[i] - NoiseAt(1, i) - noise;
        gradient[i] += d * size;
        loss += 0.5 * double{d} * double{d};
      }
    }
  }
  return poisoned_ ? std::nan("") : loss;
}

Result<collab::WorkDone> PlainWorker::Work(const collab::WorkOrder& order,
                                           std::span<const float> start, std::span<float> theta,
                                           const std::atomic<bool>& cut) {
  std::copy(start.begin(), start.end(), theta.begin());
  const std::vector<std::uint64_t> samples = SamplesOf(order);
  collab::WorkDone done;
  std::size_t at = 0;
  while (at < samples.size() && done.steps < *step_limit_) {
    const std::size_t batch = std::min<std::size_t>(order.batch, samples.size() - at);
    std::fill(gradient_.begin(), gradient_.end(), 0.0F);
    const double loss = AddGradient(std::span(samples).subspan(at, batch), theta, gradient_,
                                    1.0F / static_cast<float>(batch));
    if (!std::isfinite(loss)) {
      return MakeError(Code::kInvalid,
                       fmt::format("the loss of step {} is not finite", done.steps + 1));
    }
    for (std::size_t i = 0; i < velocity_.size(); ++i) {
      velocity_[i] = model_.momentum * velocity_[i] + gradient_[i];
      theta[i] -= model_.learning_rate * velocity_[i];
    }
    at += batch;
    done.samples += batch;
    done.tokens += batch * model_.tokens_per_sample;
    done.targets = done.tokens;
    done.loss_sum += loss * model_.tokens_per_sample / static_cast<double>(grid_->num_elements());
    done.learning_rate = model_.learning_rate;
    ++done.steps;
    if (cut.load()) break;
  }
  return done;
}

Result<collab::WorkDone> PlainWorker::Gradient(const collab::WorkOrder& order,
                                               std::span<float> weights, std::span<float> gradient,
                                               float loss_scale) {
  const std::vector<std::uint64_t> samples = SamplesOf(order);
  std::fill(gradient.begin(), gradient.end(), 0.0F);
  const double loss = AddGradient(samples, weights, gradient,
                                  loss_scale * static_cast<float>(model_.tokens_per_sample));
  const bool spoilt =
      model_.spoilt != 0 && std::ranges::find(samples, model_.spoilt) != samples.end();
  if (poisoned_ || spoilt) gradient[0] = std::nanf("");
  collab::WorkDone done;
  done.samples = samples.size();
  done.tokens = done.targets = samples.size() * model_.tokens_per_sample;
  done.loss_sum = loss * model_.tokens_per_sample / static_cast<double>(grid_->num_elements());
  done.steps = 1;
  return done;
}

void PlainWorker::Reset() { std::fill(velocity_.begin(), velocity_.end(), 0.0F); }

Status PlainWorker::SaveState(ByteSink& out) const {
  return out.Write(std::as_bytes(std::span(velocity_)));
}

Status PlainWorker::RestoreState(ByteSource& in) {
  if (in.left() != velocity_.size() * sizeof(float)) {
    return MakeError(Code::kCorrupt, "the inner state is of another model");
  }
  std::vector<float> velocity(velocity_.size());
  LOOM_RETURN_IF_ERROR(in.Read(std::as_writable_bytes(std::span(velocity))));
  if (!agreed::AllFinite(velocity))
    return MakeError(Code::kCorrupt, "the inner state holds a value that is not finite");
  velocity_ = std::move(velocity);
  return {};
}

}  // namespace loom::sim
