// Training without a swarm: the synchronous reference of `train --one-process` and of the demo.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "agreed/flat_buffer.h"
#include "agreed/tile_grid.h"
#include "app/output.h"
#include "collab/worker.h"
#include "data/dataset.h"
#include "train/frozen.h"
#include "train/spec.h"
#include "train/start_model.h"

namespace loom::app {

struct OneProcessOptions {
  train::RunSpec spec;  ///< resolved, vocab set
  train::LocalConfig local;
  std::uint32_t workers = 1;  ///< logical workers whose batches make one optimizer step
  std::uint64_t rounds = 0;   ///< of inner_steps optimizer steps each
  /// The samples of each worker in each round, as records name them; empty = workers x inner_steps
  /// batches in the order of the sampler. Its size then replaces `rounds`.
  std::vector<std::vector<std::vector<collab::Range>>> samples;
  std::vector<data::MixPart> mix = {};  ///< data::Dataset::mix
  train::StartFolders from = {};        ///< none: drawn weights
  std::string metrics_path;             ///< JSONL, one line a round, flushed; empty = none
};

struct OneProcessResult {
  agreed::TileGrid grid;
  agreed::FlatBuffer weights;
  train::FrozenWeights frozen;  ///< what was not trained
  std::uint64_t rounds = 0;
  std::uint64_t tokens = 0;
  double train_loss = 0;  ///< of the last round
  double seconds = 0;     ///< of training alone
  bool interrupted = false;
};

/// Trains from the first weights of the spec, or of the model. Prints one progress line a round.
/// Stops after the current step once `cut` is true, with the weights so far. Thread: the one that
/// configured compute.
Result<OneProcessResult> TrainOneProcess(const OneProcessOptions& options,
                                         const data::TokenStream& train,
                                         const std::atomic<bool>& cut, Output& out);

/// Loss of trained weights on a stream, nats a token.
Result<double> LossOf(const train::RunSpec& spec, const train::LocalConfig& local,
                      const agreed::TileGrid& grid, std::span<float> weights,
                      const train::FrozenWeights& frozen, const data::TokenStream& stream);

}  // namespace loom::app
