// The training of logical workers: optimizer steps on a worker's samples, starting from the agreed
// weights of a round, or (methods that step after the reduce) the gradient alone. StepEngine owns
// what all workers of a process share (the network bound to lent buffers, the gradient buffer of
// local steps); TrainWorker owns what belongs to one worker (the optimizer's state).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/tile_grid.h"
#include "collab/worker.h"
#include "data/sampler.h"
#include "data/shards.h"
#include "model/model.h"
#include "optim/inner_optimizer.h"
#include "train/frozen.h"
#include "train/spec.h"

namespace loom::train {

/// Loss and gradient of batches of samples, on weights that the caller lends. Thread: compute
/// thread.
class StepEngine {
 public:
  /// spec.model.vocab must be the tokenizer's. The error names what is out of range, or a stream
  /// shorter than one sample.
  /// `mix`: the parts of a mixture (data::Dataset::mix), or none. `frozen`: what spec.model.tuning
  /// does not train.
  static Result<std::unique_ptr<StepEngine>> Make(const RunSpec& spec, const LocalConfig& local,
                                                  data::TokenStream train,
                                                  std::span<const data::MixPart> mix = {},
                                                  FrozenWeights frozen = {});

  /// Computes with these weights and gradients (flat_size elements each) from now on; they must
  /// outlive the engine or the next Bind. Cheap when they are those already bound.
  Status Bind(std::span<float> weights, std::span<float> gradients);
  /// The same with gradients of the engine's own.
  Status Bind(std::span<float> weights);
  /// Must follow every change of the bound weights.
  void WeightsChanged();

  /// Adds the gradient of (sum of token losses) * loss_scale over these samples to gradients(), in
  /// micro-batches of at most batch / accumulation samples. Tokens without a loss are not counted.
  Result<model::LossSum> AddGradient(std::span<const std::uint64_t> samples, float loss_scale);
  void ZeroGradients();

  /// Targets of these samples that have a loss.
  std::uint64_t CountTargets(std::span<const std::uint64_t> samples) const;
  /// Tokens of the training split for each of its targets that has a loss; 1 when all have one.
  float tokens_per_target() const { return tokens_per_target_; }

  std::span<float> gradients() const { return gradients_; }  ///< Requires: Bind succeeded
  const agreed::TileGrid& grid() const { return grid_; }
  const RunSpec& spec() const { return spec_; }
  model::Model& network() { return *model_; }  ///< Requires: Bind succeeded

 private:
  StepEngine(const RunSpec& spec, data::TokenStream train, data::Sampler sampler);

  RunSpec spec_;
  data::TokenStream train_;
  data::Sampler sampler_;
  model::ModelOptions options_;
  agreed::TileGrid grid_;
  FrozenWeights frozen_;
  agreed::FlatBuffer own_gradients_;  ///< once needed
  std::span<float> weights_, gradients_;
  std::unique_ptr<model::Model> model_;
  float tokens_per_target_ = 1;
};

/// One logical worker. Its optimizer's state persists from round to round. Thread: compute thread.
class TrainWorker : public collab::Worker {
 public:
  static Result<std::unique_ptr<TrainWorker>> Make(std::shared_ptr<StepEngine> engine);

  Result<collab::WorkDone> Work(const collab::WorkOrder& order, std::span<const float> start,
                                std::span<float> theta, const std::atomic<bool>& cut) override;
  Result<collab::WorkDone> Gradient(const collab::WorkOrder& order, std::span<float> weights,
                                    std::span<float> gradient, float loss_scale) override;
  void Reset() override;
  Status SaveState(ByteSink& out) const override;
  Status RestoreState(ByteSource& in) override;

 private:
  TrainWorker(std::shared_ptr<StepEngine> engine, std::optional<optim::InnerOptimizer> optimizer);

  std::shared_ptr<StepEngine> engine_;
  std::optional<optim::InnerOptimizer> optimizer_;  ///< none where the step follows the reduce
};

/// SHA-256 of the gradient of one unit of this run's shapes, on its first weights and made-up
/// tokens (R27): peers with the same one compute the same units. Thread: one whose runtime is
/// configured.
Result<Hash> ProbeKernels(const RunSpec& spec, const LocalConfig& local);

/// The sample numbers of ranges, in order. Error: more than limit of them.
Result<std::vector<std::uint64_t>> SamplesOf(std::span<const collab::Range> ranges,
                                             std::uint64_t limit = 1ULL << 26);

}  // namespace loom::train
