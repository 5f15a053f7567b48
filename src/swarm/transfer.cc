#include "swarm/transfer.h"

#include <algorithm>

#include "crypto/hash.h"

namespace loom::swarm {
namespace {

constexpr Duration kWindowTime = 2s;      // a donor is asked for what it delivers in this time
constexpr Duration kDuplicateAfter = 1s;  // at the end, ask another when this old
constexpr Duration kFirstPause = 250ms;   // after a busy answer or a timeout; doubles
constexpr Duration kShortestService = 1us;
constexpr std::uint32_t kMaxStrikes = 16;

std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t Draw(std::uint64_t seed, ByteView id) {
  std::uint64_t head = 0;
  std::memcpy(&head, id.data(), sizeof head);
  return Mix(seed ^ head);
}

Duration Doubled(Duration first, std::uint32_t times, Duration limit) {
  Duration out = first;
  for (std::uint32_t i = 0; i < times && out < limit; ++i) out *= 2;
  return std::min(out, limit);
}

void EncodeIds(wire::Writer& out, const std::vector<Hash>& ids) {
  out.Count(ids.size());
  for (const Hash& id : ids) out.Id(id);
}

std::vector<Hash> DecodeIds(wire::Reader& in) {
  std::vector<Hash> ids(in.Count(kMaxIdsPerMessage, sizeof(Hash)));
  for (Hash& id : ids) id = in.GetId<HashTag>();
  return ids;
}

}  // namespace

void GetObjects::Encode(wire::Writer& out) const { EncodeIds(out, ids); }

Result<GetObjects> GetObjects::Decode(ByteView bytes) {
  wire::Reader in(bytes);
  GetObjects out{DecodeIds(in)};
  LOOM_RETURN_IF_ERROR(in.Finish("GetObjects"));
  return out;
}

void ObjectData::Encode(wire::Writer& out) const {
  out.Id(id);
  out.Var(*bytes);
}

Result<ObjectData> ObjectData::Decode(ByteView in_bytes) {
  wire::Reader in(in_bytes);
  const Hash id = in.GetId<HashTag>();
  const ByteView content = in.Var(kMaxObjectBytes);
  LOOM_RETURN_IF_ERROR(in.Finish("ObjectData"));
  return ObjectData{id, MakeBlob(ToBytes(content))};
}

void NotHere::Encode(wire::Writer& out) const {
  EncodeIds(out, ids);
  out.Bool(busy);
}

Result<NotHere> NotHere::Decode(ByteView bytes) {
  wire::Reader in(bytes);
  NotHere out{DecodeIds(in), false};
  out.busy = in.Bool();
  LOOM_RETURN_IF_ERROR(in.Finish("NotHere"));
  return out;
}

Result<Fetcher::Effects> Fetcher::Want(const std::vector<ObjectRef>& objects,
                                       const std::function<bool(const Hash&)>& held, Time now) {
  now_ = now;
  if (objects_.size() + objects.size() > kMaxWantedObjects) {
    return MakeError(Code::kLimit,
                     fmt::format("fetch: {} objects, the limit is {}",
                                 objects_.size() + objects.size(), kMaxWantedObjects));
  }
  for (const ObjectRef& ref : objects) {
    if (ref.size > kMaxObjectBytes) {
      return MakeError(Code::kLimit, fmt::format("fetch: object {} of {} bytes, the limit is {}",
                                                 ref.id.Short(), ref.size, kMaxObjectBytes));
    }
  }
  for (const ObjectRef& ref : objects) {
    const auto [it, added] = objects_.try_emplace(ref.id);
    if (!added) continue;
    Object& object = it->second;
    object.size = ref.size;
    object.order = Draw(options_.seed, ref.id.View());
    bytes_total_ += ref.size;
    if (held && held(ref.id)) {
      object.done = true;
      ++objects_done_;
      bytes_done_ += ref.size;
      continue;
    }
    told_done_ = false;
    for (const auto& [id, peer] : peers_) {
      if (peer.has && peer.has->contains(ref.id)) ++object.holders;
    }
    wanted_.insert(KeyOf(ref.id, object));
  }
  for (auto& [id, peer] : peers_) peer.exhausted = false;
  return Finish({});
}

Fetcher::Effects Fetcher::AddDonor(const PeerId& donor, std::optional<std::set<Hash>> has,
                                   Time now) {
  now_ = now;
  if (liars_.contains(donor)) return {};
  Drop(donor);
  if (has) {
    for (const Hash& id : *has) {
      const auto it = objects_.find(id);
      if (it == objects_.end()) continue;
      const bool waiting = wanted_.erase(KeyOf(id, it->second)) > 0;
      ++it->second.holders;
      if (waiting) wanted_.insert(KeyOf(id, it->second));
    }
  }
  Peer peer;
  peer.has = std::move(has);
  peers_.insert_or_assign(donor, std::move(peer));
  return Finish({});
}

Fetcher::Effects Fetcher::RemoveDonor(const PeerId& donor, Time now) {
  now_ = now;
  Drop(donor);
  return Finish({});
}

void Fetcher::Drop(const PeerId& donor) {
  const auto it = peers_.find(donor);
  if (it == peers_.end()) return;
  ReleaseAll(it->second);
  const bool announced = it->second.has.has_value();
  for (auto& [id, object] : objects_) {
    object.refused.erase(donor);
    if (!announced || !it->second.has->contains(id)) continue;
    const bool waiting = wanted_.erase(KeyOf(id, object)) > 0;
    --object.holders;
    if (waiting) wanted_.insert(KeyOf(id, object));
  }
  peers_.erase(it);
}

Fetcher::Effects Fetcher::OnData(const PeerId& from, const ObjectData& data, Time now) {
  now_ = now;
  Effects out;
  const auto found = objects_.find(data.id);
  // Nobody asked for it, or it came twice: then it is not worth hashing.
  if (found == objects_.end()) return out;
  Object& object = found->second;
  const auto donor = peers_.find(from);
  if (donor != peers_.end()) {
    Peer& peer = donor->second;
    const auto asked = peer.asked.find(data.id);
    if (asked != peer.asked.end()) {
      const Duration took =
          std::max(now - std::max(asked->second, peer.progress), kShortestService);
      const double sample = static_cast<double>(data.bytes->size()) / Seconds(took);
      peer.rate = peer.rate == 0 ? sample : 0.75 * peer.rate + 0.25 * sample;
      peer.window = std::min(peer.window + 1, options_.window_objects);
      peer.strikes = 0;
    }
    peer.progress = now;
    Release(peer, data.id);
  }
  if (object.done) return Finish(std::move(out));
  if (crypto::Sha256(*data.bytes) != data.id) {
    if (donor != peers_.end()) {
      Drop(from);
      liars_.insert(from);
      out.emplace_back(BlameDonor{from, data.id,
                                  fmt::format("sent {} bytes for object {} that do not match it",
                                              data.bytes->size(), data.id.Hex())});
    }
    return Finish(std::move(out));
  }
  if (donor != peers_.end()) donor->second.bytes += data.bytes->size();
  wanted_.erase(KeyOf(data.id, object));
  object.done = true;
  ++objects_done_;
  bytes_done_ += object.size;
  bytes_fetched_ += data.bytes->size();
  for (auto& [id, peer] : peers_) Release(peer, data.id);
  out.emplace_back(StoreObject{data.id, data.bytes});
  return Finish(std::move(out));
}

Fetcher::Effects Fetcher::OnNotHere(const PeerId& from, const NotHere& message, Time now) {
  now_ = now;
  const auto donor = peers_.find(from);
  if (donor == peers_.end()) return {};
  Peer& peer = donor->second;
  peer.progress = now;
  bool owed = false;
  for (const Hash& id : message.ids) {
    if (!peer.asked.contains(id)) continue;
    owed = true;
    if (!message.busy) objects_.at(id).refused.insert(from);
    Release(peer, id);
  }
  if (message.busy && owed) Strike(peer);
  return Finish({});
}

Fetcher::Effects Fetcher::Tick(Time now) {
  now_ = now;
  for (auto& [id, peer] : peers_) {
    if (peer.asked.empty()) continue;
    if (now >= peer.progress + TimeoutOf(peer)) {
      ReleaseAll(peer);
      peer.rate /= 2;
      Strike(peer);
      continue;
    }
    std::vector<Hash> stuck;
    for (const auto& [object, sent] : peer.asked) {
      if (now >= sent + options_.max_timeout) stuck.push_back(object);
    }
    for (const Hash& object : stuck) {
      objects_.at(object).refused.insert(id);
      Release(peer, object);
    }
  }
  return Finish({});
}

std::optional<Time> Fetcher::NextTick() const {
  if (done()) return std::nullopt;
  std::optional<Time> next;
  const auto at = [&](Time time) {
    if (!next || time < *next) next = time;
  };
  bool idle = false;
  for (const auto& [id, peer] : peers_) idle = idle || peer.asked.empty();
  for (const auto& [id, peer] : peers_) {
    if (peer.not_before > now_ && !(peer.exhausted && peer.asked.empty())) at(peer.not_before);
    if (peer.asked.empty()) continue;
    at(peer.progress + TimeoutOf(peer));
    for (const auto& [object, sent] : peer.asked) {
      at(sent + options_.max_timeout);
      if (idle && wanted_.empty() && sent + kDuplicateAfter > now_) at(sent + kDuplicateAfter);
    }
  }
  return next;
}

bool Fetcher::starved() const {
  return std::any_of(objects_.begin(), objects_.end(), [&](const auto& item) {
    return !item.second.done && std::none_of(peers_.begin(), peers_.end(), [&](const auto& peer) {
      return MayHave(peer.first, peer.second, item.first, item.second);
    });
  });
}

FetchProgress Fetcher::Progress(Time now) const {
  FetchProgress out;
  out.objects_done = objects_done_;
  out.objects_total = objects_.size();
  out.bytes_done = bytes_done_;
  out.bytes_total = bytes_total_;
  if (started_ && now > *started_) {
    out.bytes_per_second = static_cast<double>(bytes_fetched_) / Seconds(now - *started_);
  }
  for (const auto& [id, peer] : peers_) {
    out.donors.push_back({id, peer.bytes, peer.rate, peer.asked.size()});
  }
  out.liars.assign(liars_.begin(), liars_.end());
  return out;
}

bool Fetcher::MayHave(const PeerId& id, const Peer& peer, const Hash& object,
                      const Object& state) const {
  return (!peer.has || peer.has->contains(object)) && !state.refused.contains(id);
}

bool Fetcher::HasRoom(const Peer& peer) const {
  if (now_ < peer.not_before || peer.asked.size() >= peer.window) return false;
  if (peer.asked.empty()) return true;
  const double enough = peer.rate * Seconds(kWindowTime);
  const bool measured = peer.rate > 0;
  return peer.asked_bytes < options_.window_bytes &&
         (!measured || static_cast<double>(peer.asked_bytes) < enough);
}

std::optional<Hash> Fetcher::Pick(const PeerId& id, const Peer& peer) const {
  for (const WantedKey& key : wanted_) {
    const Hash& object = std::get<2>(key);
    if (MayHave(id, peer, object, objects_.at(object))) return object;
  }
  if (!wanted_.empty() || !peer.asked.empty()) return std::nullopt;
  // The end game: what others have owed for a while.
  std::optional<Hash> oldest;
  Time oldest_sent{};
  for (const auto& [other_id, other] : peers_) {
    for (const auto& [object, sent] : other.asked) {
      const Object& state = objects_.at(object);
      if (state.askers > 1 || now_ < sent + kDuplicateAfter) continue;
      if (!MayHave(id, peer, object, state) || (oldest && oldest_sent <= sent)) continue;
      oldest = object;
      oldest_sent = sent;
    }
  }
  return oldest;
}

void Fetcher::Ask(Peer& peer, const Hash& id) {
  Object& object = objects_.at(id);
  wanted_.erase(KeyOf(id, object));
  ++object.askers;
  if (peer.asked.empty()) peer.progress = now_;
  peer.asked.emplace(id, now_);
  peer.asked_bytes += object.size;
}

void Fetcher::Release(Peer& peer, const Hash& id) {
  if (peer.asked.erase(id) == 0) return;
  Object& object = objects_.at(id);
  peer.asked_bytes -= object.size;
  --object.askers;
  if (object.done || object.askers > 0) return;
  wanted_.insert(KeyOf(id, object));
  for (auto& [other, state] : peers_) state.exhausted = false;
}

void Fetcher::ReleaseAll(Peer& peer) {
  while (!peer.asked.empty()) {
    const Hash id = peer.asked.begin()->first;
    Release(peer, id);
  }
}

void Fetcher::Strike(Peer& peer) {
  peer.not_before = now_ + Doubled(kFirstPause, peer.strikes, options_.max_timeout);
  peer.strikes = std::min(peer.strikes + 1, kMaxStrikes);
  peer.window = std::max<std::size_t>(peer.window / 2, 1);
}

Duration Fetcher::TimeoutOf(const Peer& peer) const {
  Duration wait = Doubled(options_.first_timeout, peer.strikes, options_.max_timeout);
  if (peer.rate > 0) {
    const double seconds = 4 * static_cast<double>(peer.asked_bytes) / peer.rate;
    const double limit = Seconds(options_.max_timeout);
    wait = std::max(wait, FromSeconds(std::min(seconds, limit)));
  }
  return wait;
}

void Fetcher::Assign(Effects& out) {
  std::map<PeerId, std::vector<Hash>> asks;
  std::set<PeerId> passed;
  while (true) {
    // The donor that would answer first: the least work ahead at its measured speed.
    auto best = peers_.end();
    std::pair<double, std::uint64_t> best_load{};
    for (auto it = peers_.begin(); it != peers_.end(); ++it) {
      if (it->second.exhausted || passed.contains(it->first) || !HasRoom(it->second)) continue;
      const double speed = it->second.rate > 0 ? it->second.rate : 1e6;
      const std::pair load(static_cast<double>(it->second.asked_bytes) / speed,
                           Draw(options_.seed, it->first.View()));
      if (best == peers_.end() || load < best_load) {
        best = it;
        best_load = load;
      }
    }
    if (best == peers_.end()) break;
    const auto object = Pick(best->first, best->second);
    if (!object) {
      passed.insert(best->first);
      // A full look at what is wanted: not again before something comes back.
      best->second.exhausted = !wanted_.empty();
      continue;
    }
    Ask(best->second, *object);
    asks[best->first].push_back(*object);
  }
  for (auto& [id, ids] : asks) {
    if (!started_) started_ = now_;
    for (std::size_t at = 0; at < ids.size(); at += kMaxIdsPerMessage) {
      const auto first = ids.begin() + static_cast<std::ptrdiff_t>(at);
      const auto last =
          ids.begin() + static_cast<std::ptrdiff_t>(std::min(at + kMaxIdsPerMessage, ids.size()));
      out.emplace_back(SendGet{id, GetObjects{{first, last}}});
    }
  }
}

Fetcher::Effects Fetcher::Finish(Effects out) {
  if (!done()) {
    Assign(out);
  } else if (!told_done_ && !objects_.empty()) {
    told_done_ = true;
    out.emplace_back(FetchDone{});
  }
  return out;
}

Donor::Step Donor::OnGet(const PeerId& from, const GetObjects& message) {
  Step step;
  NotHere missing;
  NotHere busy{{}, true};
  Peer& peer = peers_[from];
  std::uint64_t looking = 0;
  for (const auto& [id, size] : peer.looking) looking += size;
  for (const Hash& id : message.ids) {
    if (peer.looking.contains(id)) continue;
    const auto size = size_of_(id);
    if (!size) {
      missing.ids.push_back(id);
    } else if (peer.looking.size() >= limits_.peer_requests ||
               peer.bytes + looking + *size > limits_.peer_bytes) {
      busy.ids.push_back(id);
    } else {
      looking += *size;
      peer.looking.emplace(id, *size);
      step.lookups.push_back({from, id});
    }
  }
  if (!missing.ids.empty()) step.answers.push_back({from, std::move(missing)});
  if (!busy.ids.empty()) step.answers.push_back({from, std::move(busy)});
  return step;
}

Donor::Step Donor::Found(const PeerId& peer_id, const Hash& id,
                         std::shared_ptr<const Bytes> bytes) {
  Step step;
  const auto found = peers_.find(peer_id);
  if (found == peers_.end() || found->second.looking.erase(id) == 0) return step;
  if (bytes == nullptr || bytes->size() > kMaxObjectBytes) {
    step.answers.push_back({peer_id, NotHere{{id}, false}});
    return step;
  }
  found->second.bytes += bytes->size();
  step.answers.push_back({peer_id, ObjectData{id, std::move(bytes)}});
  return step;
}

void Donor::Written(const PeerId& peer, std::uint64_t bytes) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  found->second.bytes -= std::min(bytes, found->second.bytes);
}

std::uint64_t Donor::outstanding(const PeerId& peer) const {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return 0;
  std::uint64_t total = found->second.bytes;
  for (const auto& [id, size] : found->second.looking) total += size;
  return total;
}

}  // namespace loom::swarm
