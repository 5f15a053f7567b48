// What must hold over all peers and over all history, checked while a simulated run goes on. It
// sees every record, every piece of work and every state, and recomputes the agreed part of a round
// by its own plain loops.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agreed/flat_buffer.h"
#include "collab/engine.h"
#include "collab/messages.h"
#include "collab/record.h"
#include "collab/sync_config.h"
#include "sim/plain_worker.h"

namespace loom::sim {

class Audit {
 public:
  Audit(const agreed::TileGrid& grid, const collab::SyncConfig& config, const PlainModel& model,
        collab::Record genesis, std::span<const float> first_weights);

  /// A contributor's commitment and the bytes behind it, whoever made them.
  void SawCommitment(const collab::Commitment& commitment) {
    commitments_.emplace(commitment.Id(), commitment);
  }
  void SawWork(Round round, WorkerIndex worker, const collab::EncodedWork& work);
  /// `who` holds this record. The first to hold a round decides what everybody has to hold.
  void SawRecord(const std::string& who, const collab::Record& record);
  /// `who`'s engine has this root while it should hold the state after `round`.
  void SawState(const std::string& who, Round round, const Hash& root);
  void Fail(std::string what);

  Round rounds() const { return records_.size() - 1; }
  const collab::Record& At(Round round) const { return records_[round]; }
  const std::vector<std::string>& failures() const { return failures_; }
  std::uint64_t used_samples() const { return used_; }
  std::uint64_t returned_samples() const { return returned_; }
  /// Exact mode: steps that were summed again under wider bounds.
  std::uint64_t raised() const { return raised_; }

 private:
  enum class Sample : std::uint8_t { kNew, kIssued, kUsed, kLost, kReturned };

  void CheckLedger(const collab::Record& parent, const collab::Record& record);
  void CheckReduce(const collab::Record& record);
  /// The mean of one tile by plain loops, from the bytes that were made.
  bool MeanOf(const collab::Record& record);
  /// Exact mode: what one process computes from the samples that the parent record issued.
  bool ExactSumOf(const collab::Record& record);
  void Issue(const collab::Body& body);
  Sample& FateOf(std::uint64_t sample);

  const agreed::TileGrid* grid_;
  collab::SyncConfig config_;
  std::unique_ptr<codec::Codec> codec_;
  std::unique_ptr<collab::TileLayout> layout_;
  std::vector<collab::Record> records_;
  std::vector<Hash> roots_;
  std::unique_ptr<agreed::StepRule> step_;
  agreed::State state_;
  PlainModel model_;
  std::vector<float> mean_;  ///< of the record at hand, flat
  std::map<Hash, collab::Commitment> commitments_;
  std::map<Hash, Blob> work_;  ///< by Merkle root of the tile hashes
  std::map<std::tuple<Round, WorkerIndex, std::uint64_t>, Hash> work_of_;
  std::vector<Sample> samples_;
  std::uint64_t used_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t raised_ = 0;
  bool ordered_ = false;  ///< an owner has turned the history
  std::vector<std::string> failures_;
};

}  // namespace loom::sim
