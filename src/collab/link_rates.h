// How fast peers send, as those who receive from them measure it (R23). Nobody's word about himself
// counts: a leader takes the median of what the others measured, and gives each owner of the reduce
// a share of the tiles in proportion. Plans are never part of what is agreed, so a wrong rate costs
// time and no correctness.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "base/time.h"
#include "collab/messages.h"

namespace loom::collab {

class LinkRates {
 public:
  /// A whole bulk message of `bytes` has come from `from`; all messages of one `burst` were sent
  /// back to back. Two are needed to measure anything.
  void OnBulk(const PeerId& from, const Hash& burst, std::size_t bytes, Time now);
  /// What `by` measured of others. Its word about itself is dropped.
  void OnTold(const PeerId& by, const std::vector<LinkRate>& rates);
  void Forget(const PeerId& by) { told_.erase(by); }

  /// What this peer measured, for telling.
  std::vector<LinkRate> Measured() const;
  /// Median over those who measured, in bytes a second; peers whom nobody measured are absent.
  std::map<PeerId, double> Medians() const;

 private:
  struct Burst {
    Hash id;
    Time first{};
    std::uint64_t bytes = 0;  ///< after the first message
    double rate = 0;          ///< smoothed; 0 = not measured yet
    double before = 0;        ///< smoothed over the earlier bursts
  };
  std::map<PeerId, Burst> own_;
  std::map<PeerId, std::map<PeerId, double>> told_;  ///< by whom, of whom
};

/// Consecutive runs of `tiles` tiles for the owners, in their order, in proportion to their rates.
/// An owner without a rate counts as an average one; nobody gets less than a quarter or more than
/// four times the average weight.
std::vector<OwnedRun> ShareTiles(std::span<const PeerId> owners,
                                 const std::map<PeerId, double>& rates, std::uint64_t tiles);

}  // namespace loom::collab
