// What a node tells about itself: the step line, metrics.jsonl, status.json, events.
#include <algorithm>
#include <array>

#include "base/human.h"
#include "base/log.h"
#include "node/node.h"

namespace loom::node {
namespace {

/// [{without, groups[[id]], pairs[[id, id]]}], those that are apart already first, without "".
/// Bounded, since an answer of the control socket is: of a large swarm in pieces some are left out.
json::Array IsolationsJson(const collab::Isolations& isolations) {
  constexpr std::size_t kMostIds = 200;
  std::size_t ids = 0;
  json::Array out;
  const auto list = [&](const auto& peers) {
    json::Array hex;
    for (const PeerId& p : peers) hex.push_back(json::Value(p.Hex()));
    ids += hex.size();
    return json::Value(std::move(hex));
  };
  const auto add = [&](const std::string& without, const collab::Separation& apart) {
    if (ids > kMostIds || (apart.groups.empty() && apart.pairs.empty())) return;
    json::Array groups, pairs;
    for (const auto& group : apart.groups) groups.push_back(list(group));
    for (const auto& [a, b] : apart.pairs) {
      if (ids <= kMostIds) pairs.push_back(list(std::array{a, b}));
    }
    out.push_back(json::Value(json::Object{{"without", json::Value(without)},
                                           {"groups", json::Value(std::move(groups))},
                                           {"pairs", json::Value(std::move(pairs))}}));
  };
  add("", isolations.now);
  for (const auto& [without, apart] : isolations.by_one) add(without.Hex(), apart);
  return out;
}

/// The record that took an order up, or the one behind it: nobody worked for them, as it has to be.
bool IsOfAnOrder(const collab::Chain& chain, Round round) {
  const collab::Body& body = chain.At(round).body;
  return body.contributions.empty() &&
         (body.order || (round > 0 && chain.At(round - 1).body.order));
}

}  // namespace

void Node::Event(json::Object object) const {
  if (options_.event) options_.event(object);
}

void Node::Say(const std::string& line) const {
  if (options_.say) options_.say(line);
}

void Node::ReportRound(Round round) {
  const Time now = reactor_.Now();
  const collab::PeerView view = peer_->View(now);
  const net::TransportStats stats = transport_->Stats();
  const double seconds = std::max(1e-3, Seconds(now - round_started_));
  round_started_ = now;
  const std::uint64_t tokens = view.tokens - std::min(view.tokens, tokens_reported_);
  const double rate =
      tokens_reported_ == 0 && round > 1 ? 0 : static_cast<double>(tokens) / seconds;
  tokens_reported_ = view.tokens;
  const double up = static_cast<double>(stats.written - bytes_up_reported_);
  const double down = static_cast<double>(stats.read - bytes_down_reported_);
  bytes_up_reported_ = stats.written;
  bytes_down_reported_ = stats.read;

  // Of a round that was only caught up with, nothing of this is known.
  const auto measured = [&](double value) {
    return view.measured ? json::Value(value) : json::Value();
  };
  const bool own_work = view.measured && view.learning_rate > 0;
  const auto worked = [&](double value) { return own_work ? json::Value(value) : json::Value(); };
  json::Object metrics{{"step", json::Value(round)},
                       {"tokens", json::Value(view.tokens)},
                       {"loss", measured(view.loss)},
                       {"lr", worked(static_cast<double>(view.learning_rate))},
                       {"grad_norm", worked(static_cast<double>(view.grad_norm))},
                       {"tokens_per_second", measured(rate)},
                       {"bytes_sent", json::Value(stats.written)},
                       {"bytes_received", json::Value(stats.read)},
                       {"peers", json::Value(static_cast<std::uint64_t>(view.members.size()))}};
  const std::string line = json::Dump(json::Value(metrics));
  if (!storage_->Post([this, line] {
        if (const Status written = folder_.AppendMetrics(line); !written) {
          Log(LogLevel::kWarn, "metrics", "{}", written.error().ToString());
        }
      })) {
    Log(LogLevel::kWarn, "metrics", "the storage thread does not keep up");
  }
  metrics.emplace_back("event", json::Value("round"));
  metrics.emplace_back("round", json::Value(round));
  metrics.emplace_back("root", json::Value(view.head.root.Hex()));
  metrics.emplace_back("leader", json::Value(view.leader.Hex()));
  Event(std::move(metrics));

  const std::uint64_t last = peer_->chain().config().rounds;
  std::string eta;
  if (view.measured && !first_measured_) first_measured_ = {round, now};
  if (last > round && view.measured && round > first_measured_->first) {
    const double left = Seconds(now - first_measured_->second) /
                        static_cast<double>(round - first_measured_->first) *
                        static_cast<double>(last - round);
    eta = fmt::format("  {} left", HumanSeconds(left));
  }
  const auto& show = round == last ? options_.say : options_.progress;  // the last one stays
  if (show && (round == last || !IsOfAnOrder(peer_->chain(), round))) {
    show(fmt::format("round {}{}  {}{}{}  up {:.2f} MB  down {:.2f} MB{}{}", round,
                     last > 0 ? fmt::format("/{}", last) : "",
                     view.measured ? fmt::format("loss {:.3f}  ", view.loss) : "caught up  ",
                     view.measured && rate > 0 ? fmt::format("{:.0f} tokens/s  ", rate) : "",
                     Counted(view.members.size(), "peer"), up / 1e6, down / 1e6,
                     own_work ? fmt::format("  norm {:.2f}", view.grad_norm) : "", eta));
  }
  if (finish_after_round_) {
    Stop({collab::PeerState::kStopped,
          "finished its round as asked; go on with: " + ResumeCommand()});
  }
}

json::Object Node::StatusJson() const {
  json::Object out;
  out.emplace_back("run", json::Value(run_              ? run_->id.Hex()
                                      : options_.invite ? options_.invite->run.Hex()
                                                        : ""));
  out.emplace_back("peer", json::Value(key_.id().Hex()));
  out.emplace_back("spec", json::Value(run_ ? train::SpecHash(run_->spec).Hex() : ""));
  json::Array addresses;
  for (const swarm::Address& a : own_addresses_) addresses.push_back(json::Value(a.ToString()));
  out.emplace_back("addresses", json::Value(std::move(addresses)));
  json::Array waits, critical, isolations, peers;
  if (!peer_) {
    const bool waits_for_data = data_fetcher_ && up_.empty();
    out.emplace_back("state", json::Value(end_ ? std::string(collab::PeerStateName(end_->state))
                                          : waits_for_data ? "waiting"
                                                           : "starting"));
    out.emplace_back("reason", json::Value(end_             ? end_->reason
                                           : waits_for_data ? LackOfData()
                                           : data_fetcher_  ? "fetching the run's data"
                                           : starting_peer_ ? "reading the folder"
                                                            : "looking for peers of the run"));
    out.emplace_back("round", json::Value(std::uint64_t{0}));
    out.emplace_back("tokens", json::Value(std::uint64_t{0}));
    out.emplace_back("root", json::Value(""));
    out.emplace_back("leader", json::Value(""));
  } else {
    const collab::PeerView view = peer_->View(reactor_.Now());
    out.emplace_back(
        "state", json::Value(std::string(collab::PeerStateName(end_ ? end_->state : view.state))));
    const std::string refused = last_refusal_.empty() ? "" : "; refused: " + last_refusal_;
    out.emplace_back("reason", json::Value(end_ ? end_->reason : view.reason + refused));
    out.emplace_back("round", json::Value(view.head.round));
    out.emplace_back("era", json::Value(std::uint64_t{view.head.era}));
    out.emplace_back("tokens", json::Value(view.tokens));
    out.emplace_back("root", json::Value(view.head.root.Hex()));
    out.emplace_back("record", json::Value(view.head.hash.Hex()));
    out.emplace_back("leader", json::Value(view.leader.Hex()));
    out.emplace_back("term", json::Value(std::uint64_t{view.term}));
    out.emplace_back("phase", json::Value(std::string(view.phase)));
    out.emplace_back("loss", view.measured ? json::Value(view.loss) : json::Value());
    for (const PeerId& p : view.waits_for) waits.push_back(json::Value(p.Hex()));
    for (const PeerId& p : view.critical) critical.push_back(json::Value(p.Hex()));
    isolations = IsolationsJson(view.isolations);
    std::set<PeerId> shown;
    const auto show = [&](const PeerId& id, bool member) {
      if (!shown.insert(id).second) return;
      const bool self = id == key_.id();
      std::string state = member ? "working" : "joining", reason;
      const auto via = view.via.find(id);
      const std::string tried = reach_.About(id);
      std::optional<double> rtt;
      if (self) {
        state = collab::PeerStateName(view.state);
        reason = view.reason;
      } else if (via != view.via.end()) {
        reason = fmt::format("through {}, without a link of its own{}", via->second.Short(),
                             tried.empty() ? "" : " (" + tried + ")");
      } else if (const auto stats = transport_ ? transport_->StatsOf(id) : std::nullopt) {
        rtt = Seconds(stats->rtt) * 1e3;
        if (stats->silent) {
          state = "silent";
          reason = "nothing heard for two seconds";
        } else if (view.unfit.contains(id)) {
          state = "waiting";
          reason = "its folder is older than its words; no vote";
        } else if (view.paused.contains(id)) {
          state = "paused";
          reason = "paused by its owner";
        }
      } else {
        state = "unreachable";
        reason = "not connected" + (tried.empty() ? "" : " (" + tried + ")");
      }
      json::Object peer{{"id", json::Value(id.Hex())},
                        {"state", json::Value(state)},
                        {"reason", json::Value(reason)},
                        {"member", json::Value(member)},
                        {"self", json::Value(self)}};
      if (rtt) peer.emplace_back("rtt_ms", json::Value(*rtt));
      if (via != view.via.end()) peer.emplace_back("via", json::Value(via->second.Hex()));
      peers.push_back(json::Value(std::move(peer)));
    };
    for (const collab::Member& m : view.members) show(m.id, true);
    show(key_.id(), false);
    for (const PeerId& p : up_) show(p, false);
  }
  out.emplace_back("waits_for", json::Value(std::move(waits)));
  out.emplace_back("critical", json::Value(std::move(critical)));
  out.emplace_back("isolations", json::Value(std::move(isolations)));
  out.emplace_back("peers", json::Value(std::move(peers)));
  constexpr std::size_t kMostShown = 24;  // an answer of the control socket has a cap
  out.emplace_back("unreached", json::Value(reach_.Json(kMostShown)));
  if (transport_) {
    const net::TransportStats stats = transport_->Stats();
    out.emplace_back("bytes_sent", json::Value(stats.written));
    out.emplace_back("bytes_received", json::Value(stats.read));
  }
  return out;
}

std::string Node::LackOfData() const {
  return fmt::format("{}/{} is missing or damaged, and nobody is connected to fetch it from",
                     options_.dir,
                     missing_data_.empty() ? "data/tokenizer.json" : missing_data_[0].name);
}

void Node::WriteStatus() {
  last_status_ = reactor_.Now();
  const std::string text = json::Dump(json::Value(StatusJson()));
  if (!storage_->Post([this, text] {
        if (const Status written = folder_.WriteStatus(text); !written) {
          Log(LogLevel::kWarn, "status", "{}", written.error().ToString());
        }
      })) {
    Log(LogLevel::kWarn, "status", "the storage thread does not keep up");
  }
}

// Where the others are must be known after kill -9, too.
void Node::SaveAddresses() {
  Addresses known;
  for (const auto& [peer, address] : directory_.Known()) {
    if (known.entries.size() < kMaxToldAddresses) known.entries.push_back({peer, address});
  }
  if (!storage_->Post([this, bytes = EncodeNodeMessage(known)] {
        if (const Status written = folder_.WriteKey("addresses", bytes); !written) {
          Log(LogLevel::kWarn, "status", "{}", written.error().ToString());
        }
      })) {
    Log(LogLevel::kWarn, "status", "the storage thread does not keep up");
  }
}

}  // namespace loom::node
