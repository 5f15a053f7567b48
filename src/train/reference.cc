// Same sample numbers as the swarm's round: worker m's h-th batch starts at cursor + (m H + h)
// batch.
#include "train/reference.h"

#include <algorithm>
#include <numeric>

#include "agreed/schedule.h"

namespace loom::train {

ReferenceTrainer::ReferenceTrainer(std::shared_ptr<StepEngine> engine, std::span<float> weights,
                                   optim::InnerOptimizer optimizer)
    : engine_(std::move(engine)), weights_(weights), optimizer_(std::move(optimizer)) {}

Result<std::unique_ptr<ReferenceTrainer>> ReferenceTrainer::Make(std::shared_ptr<StepEngine> engine,
                                                                 std::span<float> weights) {
  LOOM_ASSIGN(auto optimizer,
              optim::InnerOptimizer::Make(engine->grid(), engine->spec().optim.inner));
  return std::unique_ptr<ReferenceTrainer>(
      new ReferenceTrainer(std::move(engine), weights, std::move(optimizer)));
}

Result<ReferenceProgress> ReferenceTrainer::Round(std::uint32_t workers,
                                                  const std::atomic<bool>& cut) {
  const std::uint64_t per_worker =
      std::uint64_t{engine_->spec().sync.inner_steps} * engine_->spec().sync.batch;
  std::vector<std::vector<std::uint64_t>> samples(workers);
  for (auto& own : samples) {
    own.resize(per_worker);
    std::iota(own.begin(), own.end(), next_sample_);
    next_sample_ += per_worker;
  }
  return RoundOn(samples, cut);
}

Result<ReferenceProgress> ReferenceTrainer::RoundOn(
    std::span<const std::vector<std::uint64_t>> samples, const std::atomic<bool>& cut) {
  const RunSpec& spec = engine_->spec();
  const std::size_t batch = spec.sync.batch;
  std::size_t longest = 0;
  for (const auto& own : samples) longest = std::max(longest, own.size());
  LOOM_RETURN_IF_ERROR(engine_->Bind(weights_));
  model::LossSum round;
  std::vector<std::uint64_t> step;
  for (std::size_t at = 0; at < longest && !cut.load(); at += batch) {
    step.clear();
    for (const auto& own : samples) {
      const std::size_t end = std::min(own.size(), at + batch);
      for (std::size_t i = at; i < end; ++i) step.push_back(own[i]);
    }
    const std::uint64_t tokens = step.size() * spec.model.context;
    const std::uint64_t targets = std::max<std::uint64_t>(1, engine_->CountTargets(step));
    engine_->ZeroGradients();
    LOOM_ASSIGN(const model::LossSum loss,
                engine_->AddGradient(step, 1.0F / static_cast<float>(targets)));
    const float lr = agreed::LearningRate(spec.optim.schedule, progress_.tokens + tokens);
    LOOM_ASSIGN(const optim::StepReport report,
                optimizer_.Step(weights_, engine_->gradients(), lr));
    engine_->WeightsChanged();
    round.nll += loss.nll;
    round.tokens += loss.tokens;
    progress_.tokens += tokens;
    ++progress_.steps;
    progress_.learning_rate = lr;
    progress_.grad_norm = report.grad_norm;
  }
  ++progress_.round;
  progress_.loss = round.tokens == 0 ? 0 : round.nll / static_cast<double>(round.tokens);
  return progress_;
}

}  // namespace loom::train
