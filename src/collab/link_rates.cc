#include "collab/link_rates.h"

#include <algorithm>

namespace loom::collab {
namespace {

/// A burst that took less is over before it says anything about the link.
constexpr Duration kMeasurable = 10ms;
constexpr double kOldWeight = 0.75;  ///< of what was known, against a new burst
constexpr double kLeastShare = 0.25;
constexpr double kMostShare = 4.0;

}  // namespace

void LinkRates::OnBulk(const PeerId& from, const Hash& burst, std::size_t bytes, Time now) {
  Burst& b = own_[from];
  if (b.id != burst) {
    b.before = b.rate;
    b.id = burst;
    b.first = now;
    b.bytes = 0;
    return;
  }
  b.bytes += bytes;
  if (now - b.first < kMeasurable) return;
  const double rate = static_cast<double>(b.bytes) / Seconds(now - b.first);
  b.rate = b.before > 0 ? kOldWeight * b.before + (1 - kOldWeight) * rate : rate;
}

void LinkRates::OnTold(const PeerId& by, const std::vector<LinkRate>& rates) {
  std::map<PeerId, double>& told = told_[by];
  told.clear();
  for (const LinkRate& r : rates) {
    if (r.peer != by && r.bytes_per_second > 0)
      told[r.peer] = static_cast<double>(r.bytes_per_second);
  }
}

std::vector<LinkRate> LinkRates::Measured() const {
  std::vector<LinkRate> out;
  for (const auto& [peer, burst] : own_) {
    if (burst.rate >= 1) out.push_back({peer, static_cast<std::uint64_t>(burst.rate)});
  }
  return out;
}

std::map<PeerId, double> LinkRates::Medians() const {
  std::map<PeerId, std::vector<double>> all;
  for (const auto& [peer, burst] : own_) {
    if (burst.rate >= 1) all[peer].push_back(burst.rate);
  }
  for (const auto& [by, told] : told_) {
    for (const auto& [peer, rate] : told) all[peer].push_back(rate);
  }
  std::map<PeerId, double> out;
  for (auto& [peer, rates] : all) {
    std::sort(rates.begin(), rates.end());
    out[peer] = rates[(rates.size() - 1) / 2];
  }
  return out;
}

std::vector<OwnedRun> ShareTiles(std::span<const PeerId> owners,
                                 const std::map<PeerId, double>& rates, std::uint64_t tiles) {
  double sum = 0;
  std::size_t known = 0;
  for (const PeerId& owner : owners) {
    const auto rate = rates.find(owner);
    if (rate == rates.end()) continue;
    sum += rate->second;
    ++known;
  }
  std::vector<double> weights;
  double total = 0;
  for (const PeerId& owner : owners) {
    const auto rate = rates.find(owner);
    const double relative =
        rate == rates.end() ? 1.0 : rate->second * static_cast<double>(known) / sum;
    weights.push_back(std::clamp(relative, kLeastShare, kMostShare));
    total += weights.back();
  }
  std::vector<OwnedRun> runs;
  double until = 0;
  std::uint64_t first = 0;
  for (std::size_t k = 0; k < owners.size(); ++k) {
    until += weights[k];
    const bool last = k + 1 == owners.size();
    const std::uint64_t end =
        last ? tiles
             : std::clamp(static_cast<std::uint64_t>(static_cast<double>(tiles) * until / total),
                          first, tiles);
    runs.push_back(
        {owners[k], {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(end - first)}});
    first = end;
  }
  return runs;
}

}  // namespace loom::collab
