#include "sim/audit.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "agreed/combine.h"
#include "agreed/state.h"
#include "collab/ledger.h"
#include "crypto/hash.h"

namespace loom::sim {

using collab::Body;
using collab::Contribution;
using collab::Record;

Audit::Audit(const agreed::TileGrid& grid, const collab::SyncConfig& config,
             const PlainModel& model, Record genesis, std::span<const float> first_weights)
    : grid_(&grid),
      config_(config),
      step_(collab::MakeStepRule(config)),
      state_(agreed::State::Make(grid, step_->num_slots()).value()),
      model_(model),
      mean_(grid.flat_size()) {
  codec_ = codec::MakeCodec(codec::ParseCodec(config.codec).value(), agreed::Isa::kPlain);
  layout_ = std::make_unique<collab::TileLayout>(grid, config, *codec_);
  std::copy(first_weights.begin(), first_weights.end(), state_.weights().begin());
  roots_.push_back(genesis.body.root);
  Issue(genesis.body);
  records_.push_back(std::move(genesis));
}

void Audit::Fail(std::string what) {
  if (failures_.size() < 20) failures_.push_back(std::move(what));
}

Audit::Sample& Audit::FateOf(std::uint64_t sample) {
  if (sample >= samples_.size()) samples_.resize(sample + 64, Sample::kNew);
  return samples_[sample];
}

void Audit::SawWork(Round round, WorkerIndex worker, const collab::EncodedWork& work) {
  const Hash id = crypto::MerkleRoot(work.hashes);
  work_.emplace(id, work.encoded);
  work_of_[{round, worker, work.done.samples}] = id;
}

void Audit::SawRecord(const std::string& who, const Record& record) {
  const Round round = record.body.round;
  if (round < records_.size()) {
    const bool owners = record.body.kind == collab::Kind::kReset || record.owner;
    if (records_[round].hash != record.hash && owners &&
        records_[round - 1].hash == record.body.parent) {
      records_.resize(round);  // another history, by the owner's word
      roots_.resize(round);
      ordered_ = true;
    } else {
      // A side that has not heard of the owner's word yet may hold what is no more.
      const bool unaware = ordered_ || record.body.era < records_.back().body.era;
      if (!unaware && records_[round].hash != record.hash) {
        Fail(fmt::format("two records of round {}: {} holds {}, another held {}", round, who,
                         record.hash.Short(), records_[round].hash.Short()));
      }
      return;
    }
  }
  if (round > records_.size()) {
    if (ordered_) return;
    Fail(fmt::format("{} holds record {} before anybody held record {}", who, round,
                     records_.size()));
    return;
  }
  const Record& parent = records_.back();
  if (record.body.parent != parent.hash && ordered_) return;
  if (record.body.parent != parent.hash) Fail(fmt::format("record {} has another parent", round));
  ordered_ = ordered_ || collab::Reverts(record.body);
  if (!ordered_) {  // from there on the state is not what these loops have computed
    CheckLedger(parent, record);
    CheckReduce(record);
  }
  records_.push_back(record);
  roots_.push_back(record.body.root);
}

void Audit::SawState(const std::string& who, Round round, const Hash& root) {
  if (!ordered_ && round < roots_.size() && roots_[round] != root) {
    Fail(fmt::format("{}: its state has root {} while it should be the one after round {}, {}", who,
                     root.Short(), round, roots_[round].Short()));
  }
}

// Every issued sample gets one fate; used ones stay used for ever.
void Audit::CheckLedger(const Record& parent, const Record& record) {
  const Body& body = record.body;
  for (const collab::WorkerEntry& w : parent.body.workers) {
    std::vector<collab::Range> fates;
    std::vector<collab::Range> used;
    for (const collab::RangeFate& f : body.fates) {
      if (f.worker != w.worker) continue;
      fates.push_back(f.range);
      if (f.fate == collab::Fate::kUsed) used.push_back(f.range);
    }
    const auto numbers = [](const std::vector<collab::Range>& ranges) {
      std::vector<std::uint64_t> out;
      for (const collab::Range& r : ranges) {
        for (std::uint64_t s = r.first; s <= r.last; ++s) out.push_back(s);
      }
      std::sort(out.begin(), out.end());
      return out;
    };
    if (numbers(fates) != numbers(w.issued)) {
      Fail(fmt::format("record {}: the fates of worker {} are not what was issued to it",
                       body.round, w.worker));
    }
    std::vector<collab::Range> contributed;
    for (const Contribution& c : body.contributions) {
      if (c.worker == w.worker) contributed = c.ranges;
    }
    if (numbers(contributed) != numbers(used)) {
      Fail(fmt::format("record {}: worker {} contributed other samples than are counted used",
                       body.round, w.worker));
    }
  }
  for (const collab::RangeFate& f : body.fates) {
    for (std::uint64_t s = f.range.first; s <= f.range.last; ++s) {
      if (FateOf(s) != Sample::kIssued)
        Fail(fmt::format("record {}: sample {} has a second fate", body.round, s));
      FateOf(s) = f.fate == collab::Fate::kUsed   ? Sample::kUsed
                  : f.fate == collab::Fate::kLost ? Sample::kLost
                                                  : Sample::kReturned;
      used_ += f.fate == collab::Fate::kUsed ? 1 : 0;
      returned_ += f.fate == collab::Fate::kReturned ? 1 : 0;
    }
  }
  Issue(body);
  std::uint64_t waiting = 0;
  for (const collab::Range& r : body.returned) {
    for (std::uint64_t s = r.first; s <= r.last; ++s) {
      ++waiting;
      if (FateOf(s) != Sample::kReturned)
        Fail(fmt::format("record {}: sample {} is in the returned list", body.round, s));
    }
  }
  std::uint64_t returned = 0;
  for (std::uint64_t s = 0; s < body.next_sample; ++s) {
    if (FateOf(s) == Sample::kNew)
      Fail(fmt::format("record {}: sample {} was passed over", body.round, s));
    returned += FateOf(s) == Sample::kReturned ? 1 : 0;
  }
  if (returned != waiting)
    Fail(fmt::format("record {}: {} samples returned, {} listed", body.round, returned, waiting));
  std::uint64_t tokens = parent.body.tokens;
  for (const Contribution& c : body.contributions) tokens += c.tokens;
  if (tokens != body.tokens)
    Fail(fmt::format("record {}: {} tokens, counted {}", body.round, body.tokens, tokens));
}

void Audit::Issue(const Body& body) {
  for (const collab::WorkerEntry& w : body.workers) {
    for (const collab::Range& r : w.issued) {
      for (std::uint64_t s = r.first; s <= r.last; ++s) {
        if (FateOf(s) != Sample::kNew && FateOf(s) != Sample::kReturned) {
          Fail(fmt::format("record {}: sample {} is issued again without having been returned",
                           body.round, s));
        }
        FateOf(s) = Sample::kIssued;
      }
    }
  }
}

// The mean of the listed contributions and the step, by plain loops.
void Audit::CheckReduce(const Record& record) {
  const Body& body = record.body;
  if (body.contributions.empty()) {
    if (body.root != records_.back().body.root)
      Fail(fmt::format("record {}: nothing used, another root", body.round));
    return;
  }
  if (config_.exact ? !ExactSumOf(record) : !MeanOf(record)) return;
  std::vector<float> x(grid_->tile_elements());
  double squares = 0;
  for (std::size_t t = 0; t < grid_->size(); ++t) {
    const agreed::Tile& tile = (*grid_)[t];
    const std::span<float> values = agreed::TileSpan(tile, std::span(mean_));
    Bytes encoded(layout_->Size(t));
    if (!codec_->Encode(values, encoded)) Fail("the mean does not encode");
    if (t < body.tiles.size() && crypto::Sha256(encoded) != body.tiles[t]) {
      Fail(fmt::format("record {}: tile {} is not the mean of the listed contributions", body.round,
                       t));
      return;
    }
    if (!codec_->Decode(encoded, values)) Fail("the mean does not decode");
    squares += agreed::SumSquares(values, agreed::Isa::kPlain);
  }
  const agreed::StepScalars scalars = step_->Scalars({body.steps, body.tokens}, std::sqrt(squares));
  for (const agreed::Tile& tile : grid_->tiles()) {
    step_->Step(state_.Of(tile), agreed::TileSpan(tile, std::span(mean_)), scalars,
                grid_->tensors()[tile.tensor].shape.size() >= 2, agreed::Isa::kPlain);
  }
  const Hash root = agreed::StateRoot(*grid_, std::as_const(state_).planes());
  if (root != body.root)
    Fail(fmt::format("record {}: root {}, recomputed {}", body.round, body.root.Short(),
                     root.Short()));
}

bool Audit::MeanOf(const Record& record) {
  const Body& body = record.body;
  std::vector<Blob> inputs;
  std::vector<std::uint64_t> tokens;
  for (const Contribution& c : body.contributions) {
    const auto said = commitments_.find(c.commitment);
    const auto made = work_of_.find({body.round, c.worker, c.samples});
    const Hash id = said != commitments_.end() ? crypto::MerkleRoot(said->second.tiles)
                    : made != work_of_.end()   ? made->second
                                               : Hash{};
    const auto bytes = work_.find(id);
    if (bytes == work_.end()) {
      Fail(fmt::format("record {}: worker {} never made what it is said to have contributed",
                       body.round, c.worker));
      return false;
    }
    inputs.push_back(bytes->second);
    tokens.push_back(c.tokens);
  }
  const std::vector<float> weights = agreed::TokenWeights(tokens);
  std::vector<float> x(grid_->tile_elements());
  std::vector<double> sum(grid_->tile_elements());
  for (std::size_t t = 0; t < grid_->size(); ++t) {
    const agreed::Tile& tile = (*grid_)[t];
    const std::span<float> values(x.data(), tile.size);
    std::fill(sum.begin(), sum.end(), 0.0);
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (!codec_->Decode(layout_->View(*inputs[k], t), values))
        Fail("a contribution does not decode");
      for (std::size_t i = 0; i < tile.size; ++i) sum[i] += double{weights[k]} * double{values[i]};
    }
    for (std::size_t i = 0; i < tile.size; ++i) mean_[tile.offset + i] = static_cast<float>(sum[i]);
  }
  return true;
}

bool Audit::ExactSumOf(const Record& record) {
  const Body& body = record.body;
  const Body& parent = records_.back().body;
  const std::uint32_t no_limit = UINT32_MAX;
  PlainWorker worker(*grid_, model_, &no_limit);
  std::vector<std::vector<float>> units;
  for (const collab::WorkerEntry& w : parent.workers) {
    for (std::vector<collab::Range> rest = w.issued; !rest.empty();) {
      const std::uint64_t unit = config_.batch / config_.accumulation;
      collab::WorkOrder order;
      order.ranges = *collab::Prefix(rest, unit);
      rest = collab::Suffix(rest, unit);
      std::vector<float> gradient(grid_->flat_size());
      const float tokens = static_cast<float>(config_.workers * config_.batch * config_.context);
      if (!worker.Gradient(order, state_.weights(), gradient, 1.0F / tokens)) return false;
      units.push_back(std::move(gradient));
    }
  }
  int addends = 0;
  while ((std::size_t{1} << addends) < units.size()) ++addends;
  std::vector<int> largest(grid_->tensors().size(), agreed::kNoExponent);
  bool breaks = false;
  for (std::size_t t = 0; t < largest.size(); ++t) {
    for (const std::vector<float>& unit : units) {
      for (std::uint64_t i = 0; i < grid_->tensors()[t].Numel(); ++i) {
        int exponent = 0;
        const float x = unit[grid_->TensorOffset(t) + i];
        if (x != 0) largest[t] = std::max(largest[t], (std::frexp(x, &exponent), exponent));
      }
    }
    const int bound = parent.exponents.empty() ? 8 : std::min(parent.exponents[t] + 8, 128);
    breaks = breaks || largest[t] > bound;
    if (t < body.exponents.size() && body.exponents[t] != largest[t]) {
      Fail(fmt::format("record {}: tensor {} has exponent {}, found {}", body.round, t,
                       body.exponents[t], largest[t]));
      return false;
    }
  }
  for (std::size_t t = 0; t < largest.size(); ++t) {
    const int bound = breaks                     ? largest[t]
                      : parent.exponents.empty() ? 8
                                                 : std::min(parent.exponents[t] + 8, 128);
    const int shift = 62 - addends - bound;
    for (std::uint64_t i = 0; i < grid_->tensors()[t].Numel(); ++i) {
      const std::uint64_t at = grid_->TensorOffset(t) + i;
      std::int64_t sum = 0;
      for (const std::vector<float>& unit : units) {
        sum += std::llrint(std::ldexp(static_cast<double>(unit[at]), shift));
      }
      mean_[at] =
          static_cast<float>(std::ldexp(static_cast<double>(static_cast<float>(sum)), -shift));
    }
  }
  raised_ += breaks ? 1 : 0;
  return true;
}

}  // namespace loom::sim
