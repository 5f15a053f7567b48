#include "collab/ledger.h"

#include <algorithm>
#include <set>

#include "collab/mutations.h"
#include "collab/quorum.h"

namespace loom::collab {
namespace {

constexpr std::size_t kMaxReturned = 1024;

/// Inner steps for a worker of this rate: H for everyone within two thirds of the fastest, in
/// proportion below that, never zero (hazard 14 of the methods' reference).
std::uint32_t StepsFor(std::uint32_t rate, std::uint32_t fastest, std::uint32_t full) {
  if (rate == 0 || fastest == 0 || 3ULL * rate >= 2ULL * fastest) return full;
  return std::max<std::uint32_t>(1,
                                 static_cast<std::uint32_t>(std::uint64_t{full} * rate / fastest));
}

/// Takes `want` samples: what was returned first, then the cursor moves.
std::vector<Range> Take(std::uint64_t want, std::vector<Range>& returned, std::uint64_t& cursor) {
  std::vector<Range> taken;
  while (want > 0 && !returned.empty()) {
    Range& front = returned.front();
    const std::uint64_t n = std::min(want, front.size());
    taken.push_back({front.first, front.first + n - 1});
    want -= n;
    if (n == front.size()) {
      returned.erase(returned.begin());
    } else {
      front.first += n;
    }
  }
  if (want > 0) {
    taken.push_back({cursor, cursor + want - 1});
    cursor += want;
  }
  return taken;
}

void Issue(Body& body, const SyncConfig& config) {
  std::uint32_t fastest = 0;
  for (const WorkerEntry& w : body.workers) {
    const Member* host = FindMember(body.members, w.host);
    if (host != nullptr) fastest = std::max(fastest, host->tokens_per_second);
  }
  for (WorkerEntry& w : body.workers) {
    w.issued.clear();
    const Member* host = FindMember(body.members, w.host);
    if (host == nullptr) continue;
    const std::uint64_t steps = StepsFor(host->tokens_per_second, fastest, config.inner_steps);
    w.issued = Take(steps * config.batch, body.returned, body.next_sample);
  }
}

/// Exact mode: the workers have no state, so each record deals them anew, in blocks by seniority,
/// one after another to the member that would be done with it first. A member whose rate is not
/// known counts as the average.
void DealWorkers(Body& body) {
  std::uint64_t known = 0;
  std::uint64_t sum = 0;
  for (const Member& m : body.members) {
    known += m.tokens_per_second > 0 ? 1 : 0;
    sum += m.tokens_per_second;
  }
  const std::uint64_t average = known == 0 ? 1 : std::max<std::uint64_t>(1, sum / known);
  std::vector<std::uint64_t> rates;
  rates.reserve(body.members.size());
  for (const Member& m : body.members) {
    rates.push_back(m.tokens_per_second > 0 ? m.tokens_per_second : average);
  }
  std::vector<std::uint64_t> counts(rates.size());
  for (std::size_t dealt = 0; dealt < body.workers.size(); ++dealt) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < rates.size(); ++i) {
      if ((counts[i] + 1) * rates[best] < (counts[best] + 1) * rates[i]) best = i;
    }
    ++counts[best];
  }
  std::size_t member = 0;
  for (WorkerEntry& w : body.workers) {
    while (counts[member] == 0) ++member;
    --counts[member];
    w.host = body.members[member].id;
  }
}

/// One worker a peer, or a fixed number dealt to the members with the fewest, seniors first.
void AssignWorkers(Body& body, const SyncConfig& config) {
  if (config.workers == 0) {
    for (const Member& m : body.members) {
      const bool has = std::any_of(body.workers.begin(), body.workers.end(),
                                   [&](const WorkerEntry& w) { return w.host == m.id; });
      if (has) continue;
      WorkerEntry entry;
      entry.worker = body.workers.empty() ? 0 : body.workers.back().worker + 1;
      entry.host = m.id;
      body.workers.push_back(entry);
    }
    return;
  }
  while (body.workers.size() < config.workers) {
    WorkerEntry entry;
    entry.worker = static_cast<WorkerIndex>(body.workers.size());
    body.workers.push_back(entry);
  }
  if (body.members.empty()) return;
  if (config.exact) {
    DealWorkers(body);
    return;
  }
  for (WorkerEntry& w : body.workers) {
    if (IsMember(body.members, w.host)) continue;
    const auto load = [&](const Member& m) {
      return std::count_if(body.workers.begin(), body.workers.end(),
                           [&](const WorkerEntry& other) { return other.host == m.id; });
    };
    const auto least =
        std::min_element(body.members.begin(), body.members.end(),
                         [&](const Member& a, const Member& b) { return load(a) < load(b); });
    w.host = least->id;
  }
}

void Settle(const Body& parent, const Choices& choices, Body& body) {
  body.returned = parent.returned;
  body.next_sample = parent.next_sample;
  for (const WorkerEntry& w : parent.workers) {
    std::uint64_t used = 0;
    for (const Contribution& c : choices.contributions) {
      if (c.worker == w.worker) used = c.samples;
    }
    for (const Range& r : Prefix(w.issued, used).value_or(std::vector<Range>{})) {
      body.fates.push_back({w.worker, r, Fate::kUsed});
      if (LOOM_PLANTED(retry_counted_twice)) body.returned.push_back(r);
    }
    const bool spoiled = std::find(choices.spoiled.begin(), choices.spoiled.end(), w.worker) !=
                         choices.spoiled.end();
    for (const Range& r : Suffix(w.issued, used)) {
      const bool lost = spoiled || body.returned.size() >= kMaxReturned;
      body.fates.push_back({w.worker, r, lost ? Fate::kLost : Fate::kReturned});
      if (!lost) body.returned.push_back(r);
    }
  }
}

void MeasureRates(const Choices& choices, Body& body) {
  for (Member& m : body.members) {
    std::uint64_t tokens = 0;
    std::uint64_t millis = 0;
    for (const Contribution& c : choices.contributions) {
      if (c.peer != m.id) continue;
      tokens += c.tokens;
      millis += c.millis;
    }
    if (tokens == 0) continue;
    const std::uint64_t measured =
        std::min<std::uint64_t>(tokens * 1000 / std::max<std::uint64_t>(1, millis), UINT32_MAX);
    // Peers that share processors disturb each other: one round says little about a machine.
    const std::uint64_t known = m.tokens_per_second;
    const std::uint64_t rate = known == 0 ? measured : (3 * known + measured) / 4;
    m.tokens_per_second = static_cast<std::uint32_t>(std::max<std::uint64_t>(rate, 1));
  }
}

Choices ChoicesOf(const Body& parent, const Body& body) {
  Choices choices;
  choices.contributions = body.contributions;
  for (const RangeFate& f : body.fates) {
    if (f.fate == Fate::kLost && (choices.spoiled.empty() || choices.spoiled.back() != f.worker)) {
      choices.spoiled.push_back(f.worker);
    }
  }
  for (const Member& m : body.members) {
    if (IsMember(parent.members, m.id)) {
      choices.stay.push_back(m.id);
      continue;
    }
    Joiner joiner{m.key, std::nullopt};
    for (const InviteUse& use : body.invite_uses) {
      if (use.peer == m.id) joiner.invite = use.invite;
    }
    choices.join.push_back(joiner);
  }
  choices.bans = body.bans;
  choices.tiles = body.tiles;
  if (!body.contributions.empty() || Reverts(body)) choices.exponents = body.exponents;
  choices.order = body.order;
  choices.steps = body.steps;
  if (body.kind == Kind::kReset) choices.reset = body.era;
  choices.root = body.root;
  return choices;
}

Status CheckContributions(const Body& parent, const SyncConfig& config, const Body& body) {
  std::set<WorkerIndex> seen;
  for (const Contribution& c : body.contributions) {
    const auto entry = std::find_if(parent.workers.begin(), parent.workers.end(),
                                    [&](const WorkerEntry& w) { return w.worker == c.worker; });
    const bool hosts = entry != parent.workers.end() &&
                       (config.exact ? IsMember(parent.members, c.peer) : entry->host == c.peer);
    if (!hosts || !seen.insert(c.worker).second) {
      return MakeError(Code::kInvalid, fmt::format("record {}: worker {} is not {}'s to contribute",
                                                   body.round, c.worker, c.peer.Short()));
    }
    const auto prefix = Prefix(entry->issued, c.samples);
    if (c.samples == 0 || !prefix || *prefix != c.ranges) {
      return MakeError(Code::kInvalid,
                       fmt::format("record {}: worker {} used samples that were not issued to it",
                                   body.round, c.worker));
    }
    if (c.tokens == 0 || c.tokens > c.samples * config.context) {
      return MakeError(Code::kInvalid,
                       fmt::format("record {}: worker {} counts {} tokens in {} samples of {}",
                                   body.round, c.worker, c.tokens, c.samples, config.context));
    }
  }
  return {};
}

/// R24: every unit or none, and then all samples have one fate. R25: exponents with a step.
Status CheckExact(const Body& parent, const SyncConfig& config, const Body& body) {
  const bool step = !body.contributions.empty();
  const bool sizes = config.exact && step ? !body.exponents.empty() &&
                                                (parent.exponents.empty() ||
                                                 parent.exponents.size() == body.exponents.size())
                                          : body.exponents == parent.exponents;
  if (!sizes && !Reverts(body)) {
    return MakeError(Code::kInvalid, fmt::format("record {}: {} exponents after {}", body.round,
                                                 body.exponents.size(), parent.exponents.size()));
  }
  if (!config.exact) return {};
  const Fate fate = step                 ? Fate::kUsed
                    : body.fates.empty() ? Fate::kReturned
                                         : body.fates.front().fate;
  for (const RangeFate& f : body.fates) {
    if (f.fate != fate) {
      return MakeError(Code::kInvalid,
                       fmt::format("record {}: an exact step with {} and {} samples", body.round,
                                   FateName(fate), FateName(f.fate)));
    }
  }
  return {};
}

/// R14: an order stands alone, in its turn; a reset only names who goes on, in a later era.
Status CheckOrderForm(const Body& parent, const Body& body) {
  const auto refuse = [&](std::string_view what) {
    return MakeError(Code::kInvalid, fmt::format("record {}: {}", body.round, what));
  };
  if (body.order) {
    if (!body.contributions.empty()) return refuse("an order beside contributions");
    if (body.order->number != parent.orders + 1) return refuse("an order out of its turn");
    if (body.order->revert && *body.order->revert > parent.round)
      return refuse("an order to return to a record that is not there yet");
    if (!body.order->revert && body.order->settings.empty()) return refuse("an empty order");
  }
  if (body.kind != Kind::kReset) return {};
  if (body.era <= parent.era) return refuse("a reset to no later era");
  if (body.order || !body.contributions.empty())
    return refuse("a reset that does more than to name who goes on");
  for (const Member& m : body.members) {
    if (!IsMember(parent.members, m.id)) return refuse("a reset that names a new member");
  }
  return {};
}

}  // namespace

std::uint64_t CountSamples(const std::vector<Range>& ranges) {
  std::uint64_t n = 0;
  for (const Range& r : ranges) n += r.size();
  return n;
}

bool Finished(const Body& body, const SyncConfig& config) {
  return config.rounds > 0 && (config.exact ? body.steps : body.round) >= config.rounds;
}

std::optional<std::vector<Range>> Prefix(const std::vector<Range>& ranges, std::uint64_t samples) {
  std::vector<Range> out;
  for (const Range& r : ranges) {
    if (samples == 0) break;
    const std::uint64_t n = std::min(samples, r.size());
    out.push_back({r.first, r.first + n - 1});
    samples -= n;
  }
  if (samples > 0) return std::nullopt;
  return out;
}

std::vector<Range> Suffix(const std::vector<Range>& ranges, std::uint64_t samples) {
  std::vector<Range> out;
  for (const Range& r : ranges) {
    const std::uint64_t n = std::min(samples, r.size());
    samples -= n;
    if (n < r.size()) out.push_back({r.first + n, r.last});
  }
  return out;
}

Body GenesisBody(const Bytes& genesis, const crypto::PublicKey& founder, const Hash& root,
                 const SyncConfig& config) {
  Body body;
  body.kind = Kind::kGenesis;
  body.members.push_back({founder, crypto::PeerIdOf(founder), 0});
  body.root = root;
  body.payload = genesis;
  AssignWorkers(body, config);
  Issue(body, config);
  return body;
}

Body NextBody(const Body& parent, const Hash& parent_hash, const RunId& run,
              const SyncConfig& config, const Choices& choices) {
  Body body;
  body.run = run;
  body.era = choices.reset.value_or(parent.era);
  body.round = parent.round + 1;
  body.parent = parent_hash;
  body.kind = choices.reset ? Kind::kReset : Kind::kStep;
  body.orders = parent.orders + (choices.order ? 1 : 0);
  body.order = choices.order;
  body.arithmetic = parent.arithmetic;
  for (const Member& m : parent.members) {
    if (std::find(choices.stay.begin(), choices.stay.end(), m.id) != choices.stay.end()) {
      body.members.push_back(m);
    }
  }
  for (const Joiner& j : choices.join) {
    const PeerId id = crypto::PeerIdOf(j.key);
    body.members.push_back({j.key, id, body.round});
    if (j.invite) body.invite_uses.push_back({*j.invite, id});
  }
  SortBySeniority(body.members);
  std::sort(body.invite_uses.begin(), body.invite_uses.end(),
            [](const InviteUse& a, const InviteUse& b) { return a.peer < b.peer; });
  body.contributions = choices.contributions;
  Settle(parent, choices, body);
  body.tiles = choices.tiles;
  body.tokens = parent.tokens;
  body.steps = parent.steps + (choices.contributions.empty() ? 0 : 1);
  body.exponents = choices.contributions.empty() ? parent.exponents : choices.exponents;
  if (Reverts(body)) {
    body.steps = choices.steps;
    body.exponents = choices.exponents;
  }
  body.workers = parent.workers;
  for (const Contribution& c : choices.contributions) body.tokens += c.tokens;
  MeasureRates(choices, body);
  AssignWorkers(body, config);
  Issue(body, config);
  body.bans = choices.bans;
  body.root = choices.root;
  return body;
}

Status CheckNextBody(const Body& parent, const Hash& parent_hash, const RunId& run,
                     const SyncConfig& config, std::size_t num_tiles, const Body& body) {
  LOOM_RETURN_IF_ERROR(CheckContributions(parent, config, body));
  LOOM_RETURN_IF_ERROR(CheckExact(parent, config, body));
  const Choices choices = ChoicesOf(parent, body);
  if (choices.stay.empty() ||
      choices.join.size() > std::max<std::size_t>(1, choices.stay.size() - 1)) {
    return MakeError(Code::kInvalid,
                     fmt::format("record {}: {} joiners beside {} members that stay (rule R11)",
                                 body.round, choices.join.size(), choices.stay.size()));
  }
  LOOM_RETURN_IF_ERROR(CheckOrderForm(parent, body));
  if (body.contributions.empty()
          ? (!body.tiles.empty() || (body.root != parent.root && !Reverts(body)))
          : body.tiles.size() != num_tiles) {
    return MakeError(Code::kInvalid, fmt::format("record {}: {} tiles, the grid has {}", body.round,
                                                 body.tiles.size(), num_tiles));
  }
  if (NextBody(parent, parent_hash, run, config, choices) != body) {
    return MakeError(
        Code::kInvalid,
        fmt::format("record {}: it does not follow from its parent and its choices", body.round));
  }
  return {};
}

std::optional<WorkOrder> OrderOf(const Body& parent, WorkerIndex worker, const SyncConfig& config) {
  const auto entry = std::find_if(parent.workers.begin(), parent.workers.end(),
                                  [&](const WorkerEntry& w) { return w.worker == worker; });
  if (entry == parent.workers.end() || entry->issued.empty()) return std::nullopt;
  std::uint64_t active = 0;
  for (const WorkerEntry& w : parent.workers) active += w.issued.empty() ? 0 : 1;
  WorkOrder order;
  order.round = parent.round + 1;
  order.worker = worker;
  order.ranges = entry->issued;
  order.batch = config.batch;
  order.tokens_before = parent.tokens;
  order.tokens_per_step = active * config.batch * config.context;
  return order;
}

}  // namespace loom::collab
