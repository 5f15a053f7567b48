// Same sample numbers as the swarm's round: worker m's h-th batch starts at cursor + (m H + h)
// batch.
#include "train/reference.h"

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
  const RunSpec& spec = engine_->spec();
  const std::uint64_t batch = spec.sync.batch;
  const std::uint64_t per_worker = spec.sync.inner_steps * batch;
  LOOM_RETURN_IF_ERROR(engine_->Bind(weights_));
  model::LossSum round;
  std::vector<std::uint64_t> samples;
  for (std::uint64_t step = 0; step < spec.sync.inner_steps && !cut.load(); ++step) {
    samples.clear();
    for (std::uint64_t worker = 0; worker < workers; ++worker) {
      for (std::uint64_t i = 0; i < batch; ++i) {
        samples.push_back(next_sample_ + worker * per_worker + step * batch + i);
      }
    }
    const std::uint64_t tokens = samples.size() * spec.model.context;
    engine_->ZeroGradients();
    LOOM_ASSIGN(const model::LossSum loss,
                engine_->AddGradient(samples, 1.0F / static_cast<float>(tokens)));
    const float lr = agreed::LearningRate(spec.optim.schedule, progress_.tokens + tokens);
    LOOM_ASSIGN(const optim::StepReport report,
                optimizer_.Step(weights_, engine_->gradients(), lr));
    engine_->WeightsChanged();
    round.nll += loss.nll;
    round.tokens += loss.tokens;
    progress_.tokens += loss.tokens;
    ++progress_.steps;
    progress_.learning_rate = lr;
    progress_.grad_norm = report.grad_norm;
  }
  next_sample_ += workers * per_worker;
  ++progress_.round;
  progress_.loss = round.tokens == 0 ? 0 : round.nll / static_cast<double>(round.tokens);
  return progress_;
}

}  // namespace loom::train
