// Catching up and helping others to (R6, R11): records are fetched by number and checked as a
// chain; reduced bytes and whole states are fetched by hash from several donors at once.
#include <algorithm>

#include "collab/peer.h"
#include "crypto/hash.h"

namespace loom::collab {

void Peer::OnHello(const PeerId& from, const Hello& hello, Time now, Effects& out) {
  Remote& remote = remotes_[from];
  const bool answer = hello.asks || !remote.greeted;
  const bool links_changed = remote.hello.links != hello.links;
  remote.hello = hello;
  rates_.OnTold(from, hello.rates);
  remote.greeted = true;
  if (answer) SayHello(from, out);
  HearOwnWord(from, hello.seen, out);
  JudgeFitness(from, hello);
  if (hello.leaving && hello.head.round >= chain_.rounds()) {
    leaving_.insert(from);
  } else if (!hello.leaving) {
    leaving_.erase(from);
  }
  if (machine_) machine_->SetLeaving(leaving_);
  if (fetcher_ && hello.head.round > state_round_) {
    CarryFetch(fetcher_->AddDonor(from, std::nullopt, now), now, out);
  }
  if (Forked(remote)) ConsiderFork(from, now, out);
  if (hello.head.round > chain_.rounds() && hello.head.era >= chain_.head().body.era) {
    asked_records_ = now;
    out.push_back(Send{from, GetRecords{chain_.rounds() + 1}});
  }
  if (links_changed) ConsiderRelays(now, out);
  if (machine_ == nullptr) Advance(now, out);
}

void Peer::AskRecords(Time now, Effects& out) {
  if (now - asked_records_ < 1s) return;
  for (const auto& [peer, remote] : remotes_) {
    if (!remote.greeted || !presence_.Present(peer)) continue;
    if (Forked(remote)) ConsiderFork(peer, now, out);
    if (remote.hello.head.round > chain_.rounds() &&
        remote.hello.head.era >= chain_.head().body.era) {
      asked_records_ = now;
      out.push_back(Send{peer, GetRecords{chain_.rounds() + 1}});
      return;
    }
  }
}

void Peer::OnRecord(const PeerId& from, const RecordMessage& message, Time now, Effects& out) {
  auto record = Record::Decode(message.record);
  if (!record) {
    Problem(from, record.error().ToString(), out);
    return;
  }
  const Round round = record->body.round;
  if (round == 0) return;
  if (fork_ && record->body.parent == fork_->hash) {
    OnOtherRecord(from, std::move(*record), now, out);
    return;
  }
  if (round > chain_.rounds() + 1) return;
  if (round <= chain_.rounds() ? chain_.At(round).hash != record->hash
                               : record->body.parent != chain_.head().hash) {
    OnOtherRecord(from, std::move(*record), now, out);
    return;
  }
  if (round <= chain_.rounds()) return;
  Record kept = std::move(*record);
  if (const Status ok = chain_.Append(std::move(kept)); !ok) {
    Problem(from, ok.error().ToString(), out);
    return;
  }
  record_token_ = ids_.Take();
  out.push_back(Persist{record_token_, AppendRecord{chain_.head().Encode()}});
  const auto remote = remotes_.find(from);
  if (remote != remotes_.end() && remote->second.hello.head.round > chain_.rounds() &&
      chain_.rounds() % 64 == 0) {
    asked_records_ = now;
    out.push_back(Send{from, GetRecords{chain_.rounds() + 1}});
  }
  Advance(now, out);
}

void Peer::StopFetching() {
  fetcher_.reset();
  fetch_places_.clear();
  fetched_.clear();
  fetched_bytes_ = {};
  misfit_.reset();
  fetched_round_.reset();
  fetching_round_ = 0;
  fetching_state_ = false;
  fetch_leaves_.clear();
}

// The reduced bytes of the next round, or, when nobody has them any more, the whole state of a
// donor's checkpoint.
void Peer::WantRound(Time now, Effects& out) {
  const Round wanted = state_round_ + 1;
  if (fetching_state_) {
    if (fetcher_ && !fetcher_->starved()) return;
    // The donors saved newer checkpoints meanwhile and forgot this one: begin again with theirs.
    StopFetching();
    asked_leaves_ = Time{};
  }
  bool has_round = false;
  bool has_state = false;
  for (const auto& [peer, remote] : remotes_) {
    if (!remote.greeted || !presence_.connected.contains(peer)) continue;
    has_round = has_round || (remote.hello.oldest != 0 && remote.hello.oldest <= wanted &&
                              remote.hello.head.round >= wanted);
    has_state = has_state || (remote.hello.checkpoint > state_round_ &&
                              remote.hello.checkpoint <= chain_.rounds());
  }
  // A whole state is two words an element, a round's bytes less than half of one: far behind, the
  // checkpoint is the shorter way.
  if (has_state && (!has_round || chain_.rounds() - state_round_ > 32)) {
    WantState(now, out);
    return;
  }
  if (fetcher_ && fetching_round_ == wanted) {
    // Donors forget old rounds as they save the state; what nobody has any more is not waited for.
    if (fetcher_->starved() && has_state) WantState(now, out);
    return;
  }
  StopFetching();
  fetching_round_ = wanted;
  fetch_began_ = now;
  fetcher_ = std::make_unique<swarm::Fetcher>(
      swarm::FetchOptions{.seed = options_.seed + wanted,
                          .first_timeout = std::clamp<Duration>(2 * exchange_time_, 1s, 5s)});
  const Record& record = chain_.At(wanted);
  fetched_bytes_.resize(layout_.total());
  std::vector<swarm::ObjectRef> objects;
  for (std::uint32_t i = 0; i < record.body.tiles.size(); ++i) {
    fetch_places_.emplace(record.body.tiles[i], i);
    objects.push_back({record.body.tiles[i], static_cast<std::uint32_t>(layout_.Size(i))});
  }
  // Of the round that was decided without this peer some tiles may be here.
  const auto held = [&](const Hash& id) {
    const auto tile = machine_ != nullptr ? machine_->FindTile(id) : std::nullopt;
    if (tile) StoreFetched(id, tile->View());
    return tile.has_value();
  };
  auto effects = fetcher_->Want(objects, held, now);
  if (!effects) {
    Problem(env_.self, effects.error().ToString(), out);
    return;
  }
  CarryFetch(std::move(*effects), now, out);
  for (const auto& [peer, remote] : remotes_) {
    if (!fetcher_) return;
    if (presence_.connected.contains(peer) && remote.greeted &&
        remote.hello.head.round > state_round_) {
      CarryFetch(fetcher_->AddDonor(peer, std::nullopt, now), now, out);
    }
  }
}

void Peer::WantState(Time now, Effects& out) {
  if (now - asked_leaves_ < 2s && asked_leaves_ != Time{}) return;
  asked_leaves_ = now;
  for (const auto& [peer, remote] : remotes_) {
    if (remote.greeted && presence_.Present(peer) && remote.hello.checkpoint > state_round_ &&
        remote.hello.checkpoint <= chain_.rounds()) {
      out.push_back(Send{peer, GetLeaves{remote.hello.checkpoint}});
    }
  }
}

void Peer::OnLeaves(const PeerId& from, const Leaves& leaves, Time now, Effects& out) {
  if (AtHead() || fetching_state_ || applying_ || leaves.round <= state_round_ ||
      leaves.round > chain_.rounds())
    return;
  if (leaves.leaves.size() != layout_.num_tiles() ||
      crypto::MerkleRoot(leaves.leaves) != chain_.At(leaves.round).body.root) {
    Problem(from, fmt::format("its leaves of round {} do not make the root", leaves.round), out);
    return;
  }
  StopFetching();
  fetching_state_ = true;
  fetch_state_round_ = leaves.round;
  fetch_leaves_ = leaves.leaves;
  fetched_.assign(layout_.num_tiles(), nullptr);
  fetcher_ = std::make_unique<swarm::Fetcher>(swarm::FetchOptions{.seed = options_.seed});
  std::vector<swarm::ObjectRef> objects;
  for (std::uint32_t i = 0; i < leaves.leaves.size(); ++i) {
    fetch_places_.emplace(leaves.leaves[i], i);
    objects.push_back({leaves.leaves[i], static_cast<std::uint32_t>(layout_.StateSize(i))});
  }
  auto effects = fetcher_->Want(objects, [](const Hash&) { return false; }, now);
  if (!effects) {
    Problem(env_.self, effects.error().ToString(), out);
    StopFetching();
    return;
  }
  CarryFetch(std::move(*effects), now, out);
  for (const auto& [peer, remote] : remotes_) {
    if (!fetcher_) return;
    if (presence_.connected.contains(peer) && remote.greeted &&
        (peer == from || remote.hello.checkpoint == leaves.round)) {
      CarryFetch(fetcher_->AddDonor(peer, std::nullopt, now), now, out);
    }
  }
}

void Peer::CarryFetch(swarm::Fetcher::Effects effects, Time now, Effects& out) {
  bool done = false;
  for (auto& effect : effects) {
    if (auto* get = std::get_if<swarm::SendGet>(&effect)) {
      if (presence_.connected.contains(get->to))
        out.push_back(Send{get->to, std::move(get->message)});
    } else if (const auto* object = std::get_if<swarm::StoreObject>(&effect)) {
      if (fetching_state_) {
        const auto [first, last] = fetch_places_.equal_range(object->id);
        for (auto it = first; it != last; ++it) fetched_[it->second] = object->bytes;
      } else {
        StoreFetched(object->id, *object->bytes);
      }
    } else if (const auto* blame = std::get_if<swarm::BlameDonor>(&effect)) {
      Problem(blame->donor, blame->reason, out);
    } else {
      done = true;
    }
  }
  if (!done || !fetcher_) return;
  if (fetching_state_) {
    LoadStateJob job{fetch_state_round_, std::move(fetched_),
                     chain_.At(fetch_state_round_).body.root};
    const Round round = fetch_state_round_;
    StopFetching();
    applying_ = true;
    loading_state_ = true;
    apply_job_ = ids_.Take();
    state_round_ = round - 1;  // Applied() counts it as one step
    out.push_back(CutWork{});
    out.push_back(Compute{apply_job_, std::move(job)});
    return;
  }
  if (misfit_) {
    Fail(MakeError(Code::kCorrupt,
                   fmt::format("record {} names bytes for tile {} that are not the {} of the grid",
                               fetching_round_, *misfit_, layout_.Size(*misfit_)),
                   "a quorum of this run does not follow its own rules: ask its owner"),
         out);
    return;
  }
  // An exchange moves about as much: a first prediction, before one was measured.
  if (exchange_times_.empty()) exchange_time_ = std::max(exchange_time_, now - fetch_began_);
  Bytes whole = std::move(fetched_bytes_);
  const Round round = fetching_round_;
  StopFetching();
  fetching_round_ = round;
  fetched_round_ = MakeBlob(std::move(whole));
  Advance(now, out);
}

void Peer::StoreFetched(const Hash& id, ByteView bytes) {
  const auto [first, last] = fetch_places_.equal_range(id);
  for (auto it = first; it != last; ++it) {
    const std::uint32_t tile = it->second;
    if (bytes.size() != layout_.Size(tile)) {
      misfit_ = tile;
    } else {
      std::ranges::copy(bytes,
                        fetched_bytes_.begin() + static_cast<std::ptrdiff_t>(layout_.Offset(tile)));
    }
  }
}

void Peer::IndexRound(Round round) {
  const Record& record = chain_.At(round);
  for (std::uint32_t i = 0; i < record.body.tiles.size(); ++i) {
    round_tiles_.insert_or_assign(record.body.tiles[i], std::pair(round, i));
  }
}

void Peer::OnGet(const PeerId& from, const swarm::GetObjects& get, Time now, Effects& out) {
  last_served_ = now;
  for (const Hash& id : get.ids) {
    const RoundMachine* machine = machine_ != nullptr ? machine_.get() : sealed_machine_.get();
    if (machine != nullptr) {
      if (const auto tile = machine->FindTile(id)) {
        out.push_back(Send{from, swarm::ObjectData{id, MakeBlob(ToBytes(tile->View()))}});
        continue;
      }
    }
    if (const auto it = round_tiles_.find(id); it != round_tiles_.end()) {
      out.push_back(Serve{from, id, Serve::From::kRound, it->second.first, it->second.second});
    } else if (const auto leaf = leaf_index_.find(id); leaf != leaf_index_.end()) {
      out.push_back(Serve{from, id, Serve::From::kCheckpoint, checkpoint_round_, leaf->second});
    } else {
      out.push_back(Serve{from, id, Serve::From::kObjects, 0, 0});
    }
  }
}

}  // namespace loom::collab
