#include "collab/record.h"

#include <algorithm>
#include <map>

#include "crypto/hash.h"

namespace loom::collab {
namespace {

using wire::Reader;
using wire::Writer;

constexpr std::uint32_t kBodyVersion = 2;

void PutRanges(Writer& out, const std::vector<Range>& ranges) {
  out.Count(ranges.size());
  for (const Range& r : ranges) {
    out.Int(r.first);
    out.Int(r.last);
  }
}

Range GetRange(Reader& in) {
  Range r;
  r.first = in.Int<std::uint64_t>();
  r.last = in.Int<std::uint64_t>();
  if (r.last < r.first || r.last - r.first >= (1ULL << 40))
    in.Fail("a range that ends before it begins");
  return r;
}

std::vector<Range> GetRanges(Reader& in) {
  std::vector<Range> ranges(in.Count(kMaxRanges, 16));
  for (Range& r : ranges) r = GetRange(in);
  return ranges;
}

void PutKey(Writer& out, const crypto::PublicKey& key) { out.Raw(key.bytes); }

crypto::PublicKey GetKey(Reader& in) {
  crypto::PublicKey key;
  const ByteView raw = in.Raw(key.bytes.size());
  std::copy(raw.begin(), raw.end(), key.bytes.begin());
  return key;
}

void PutRef(Writer& out, const ObjectRef& ref) {
  out.Id(ref.id);
  out.Int(ref.size);
}

ObjectRef GetRef(Reader& in) {
  ObjectRef ref;
  ref.id = in.GetId<HashTag>();
  ref.size = in.Int<std::uint64_t>();
  return ref;
}

std::vector<ObjectRef> GetRefs(Reader& in) {
  std::vector<ObjectRef> refs(in.Count(1U << 16, 40));
  for (ObjectRef& ref : refs) ref = GetRef(in);
  return refs;
}

}  // namespace

std::string_view KindName(Kind kind) {
  switch (kind) {
    case Kind::kGenesis:
      return "genesis";
    case Kind::kStep:
      return "step";
    case Kind::kReset:
      return "reset";
  }
  return "unknown";
}

std::string_view FateName(Fate fate) {
  switch (fate) {
    case Fate::kUsed:
      return "used";
    case Fate::kLost:
      return "lost";
    case Fate::kReturned:
      return "returned";
  }
  return "unknown";
}

Bytes Body::Encode() const {
  Writer out;
  out.Int(kBodyVersion);
  out.Id(run);
  out.Int(era);
  out.Int(round);
  out.Id(parent);
  out.Int(static_cast<std::uint8_t>(kind));
  out.Int(arithmetic);
  out.Count(members.size());
  for (const Member& m : members) {
    PutKey(out, m.key);
    out.Int(m.since);
    out.Int(m.tokens_per_second);
  }
  out.Count(contributions.size());
  for (const Contribution& c : contributions) {
    out.Int(c.worker);
    out.Id(c.peer);
    out.Int(c.samples);
    out.Int(c.tokens);
    out.Int(c.millis);
    PutRanges(out, c.ranges);
    out.Id(c.commitment);
  }
  out.Count(fates.size());
  for (const RangeFate& f : fates) {
    out.Int(f.worker);
    out.Int(f.range.first);
    out.Int(f.range.last);
    out.Int(static_cast<std::uint8_t>(f.fate));
  }
  out.Count(tiles.size());
  for (const Hash& t : tiles) out.Id(t);
  out.Int(tokens);
  out.Int(steps);
  out.Count(exponents.size());
  for (const agreed::Exponent e : exponents) out.Int(static_cast<std::uint16_t>(e));
  out.Int(next_sample);
  PutRanges(out, returned);
  out.Count(workers.size());
  for (const WorkerEntry& w : workers) {
    out.Int(w.worker);
    out.Id(w.host);
    PutRanges(out, w.issued);
  }
  out.Count(invite_uses.size());
  for (const InviteUse& u : invite_uses) {
    out.Id(u.invite);
    out.Id(u.peer);
  }
  out.Count(bans.size());
  for (const PeerId& p : bans) out.Id(p);
  out.Int(orders);
  out.Bool(order.has_value());
  if (order) order->Encode(out);
  out.Id(root);
  out.Var(payload);
  return std::move(out).Take();
}

Result<Body> Body::Decode(ByteView bytes) {
  Reader in(bytes);
  Body body;
  if (const auto version = in.Int<std::uint32_t>(); version != kBodyVersion) {
    return MakeError(Code::kCorrupt,
                     fmt::format("record body: version {}, this program reads version {}", version,
                                 kBodyVersion));
  }
  body.run = in.GetId<RunTag>();
  body.era = in.Int<Era>();
  body.round = in.Int<Round>();
  body.parent = in.GetId<HashTag>();
  const auto kind = in.Int<std::uint8_t>();
  if (kind > 2) in.Fail("an unknown record kind");
  body.kind = static_cast<Kind>(kind);
  body.arithmetic = in.Int<std::uint32_t>();
  body.members.resize(in.Count(kMaxMembers, 44));
  for (Member& m : body.members) {
    m.key = GetKey(in);
    m.since = in.Int<Round>();
    m.tokens_per_second = in.Int<std::uint32_t>();
    m.id = crypto::PeerIdOf(m.key);
  }
  body.contributions.resize(in.Count(kMaxMembers, 92));
  for (Contribution& c : body.contributions) {
    c.worker = in.Int<WorkerIndex>();
    c.peer = in.GetId<PeerTag>();
    c.samples = in.Int<std::uint64_t>();
    c.tokens = in.Int<std::uint64_t>();
    c.millis = in.Int<std::uint32_t>();
    c.ranges = GetRanges(in);
    c.commitment = in.GetId<HashTag>();
  }
  body.fates.resize(in.Count(kMaxRanges, 21));
  for (RangeFate& f : body.fates) {
    f.worker = in.Int<WorkerIndex>();
    f.range = GetRange(in);
    const auto fate = in.Int<std::uint8_t>();
    if (fate > 2) in.Fail("an unknown fate");
    f.fate = static_cast<Fate>(fate);
  }
  body.tiles.resize(in.Count(kMaxTiles, 32));
  for (Hash& t : body.tiles) t = in.GetId<HashTag>();
  body.tokens = in.Int<std::uint64_t>();
  body.steps = in.Int<std::uint64_t>();
  body.exponents.resize(in.Count(kMaxTensors, 2));
  for (agreed::Exponent& e : body.exponents) {
    e = static_cast<agreed::Exponent>(in.Int<std::uint16_t>());
    if (e < agreed::kNoExponent || e > agreed::kMaxExponent) in.Fail("an impossible exponent");
  }
  body.next_sample = in.Int<std::uint64_t>();
  body.returned = GetRanges(in);
  body.workers.resize(in.Count(kMaxMembers * 4, 40));
  for (WorkerEntry& w : body.workers) {
    w.worker = in.Int<WorkerIndex>();
    w.host = in.GetId<PeerTag>();
    w.issued = GetRanges(in);
  }
  body.invite_uses.resize(in.Count(kMaxMembers, 64));
  for (InviteUse& u : body.invite_uses) {
    u.invite = in.GetId<HashTag>();
    u.peer = in.GetId<PeerTag>();
  }
  body.bans.resize(in.Count(kMaxMembers, 32));
  for (PeerId& p : body.bans) p = in.GetId<PeerTag>();
  body.orders = in.Int<std::uint64_t>();
  if (in.Bool()) body.order = Order::Decode(in);
  body.root = in.GetId<HashTag>();
  body.payload = ToBytes(in.Var(kMaxBodyBytes));
  LOOM_RETURN_IF_ERROR(in.Finish("record body"));
  return body;
}

Hash BodyHash(ByteView encoded_body) {
  crypto::Sha256Stream stream;
  stream.Update(AsBytes("loom body"));
  stream.Update(encoded_body);
  return stream.Finish();
}

void Vote::Encode(Writer& out) const {
  out.Id(peer);
  out.Int(term);
  out.Id(body);
  out.Int(seq);
  out.Raw(signature.bytes);
}

Vote Vote::Decode(Reader& in) {
  Vote vote;
  vote.peer = in.GetId<PeerTag>();
  vote.term = in.Int<Term>();
  vote.body = in.GetId<HashTag>();
  vote.seq = in.Int<std::uint64_t>();
  const ByteView raw = in.Raw(vote.signature.bytes.size());
  std::copy(raw.begin(), raw.end(), vote.signature.bytes.begin());
  return vote;
}

void PartSignature::Encode(Writer& out) const {
  out.Id(owner);
  out.Int(term);
  out.Int(attempt);
  out.Int(run.first);
  out.Int(run.count);
  out.Raw(signature.bytes);
}

PartSignature PartSignature::Decode(Reader& in) {
  PartSignature part;
  part.owner = in.GetId<PeerTag>();
  part.term = in.Int<Term>();
  part.attempt = in.Int<std::uint32_t>();
  part.run.first = in.Int<std::uint32_t>();
  part.run.count = in.Int<std::uint32_t>();
  const ByteView raw = in.Raw(part.signature.bytes.size());
  std::copy(raw.begin(), raw.end(), part.signature.bytes.begin());
  return part;
}

Result<Record> Record::FromBody(Blob encoded) {
  Record record;
  LOOM_ASSIGN(record.body, Body::Decode(*encoded));
  record.hash = BodyHash(*encoded);
  record.encoded = std::move(encoded);
  return record;
}

std::optional<Duration> SlowestWork(const Record& record) {
  std::map<PeerId, std::uint64_t> millis;
  std::uint64_t slowest = 0;
  for (const Contribution& c : record.body.contributions) {
    slowest = std::max(slowest, millis[c.peer] += c.millis);
  }
  if (slowest == 0) return std::nullopt;
  return std::chrono::milliseconds(slowest);
}

agreed::StepClock ClockOf(const Body& body) { return {body.steps, body.tokens}; }

Bytes Record::Encode() const {
  Writer out;
  out.Var(*encoded);
  out.Int(term);
  out.Count(votes.size());
  for (const Vote& v : votes) v.Encode(out);
  out.Count(parts.size());
  for (const PartSignature& p : parts) p.Encode(out);
  out.Bool(owner.has_value());
  if (owner) out.Raw(owner->bytes);
  return std::move(out).Take();
}

Result<Record> Record::Decode(ByteView bytes) {
  Reader in(bytes);
  Blob encoded = MakeBlob(ToBytes(in.Var(kMaxBodyBytes)));
  if (!in.ok()) return in.Finish("record").error();
  LOOM_ASSIGN(Record record, FromBody(std::move(encoded)));
  record.term = in.Int<Term>();
  record.votes.resize(in.Count(kMaxMembers, 140));
  for (Vote& v : record.votes) v = Vote::Decode(in);
  record.parts.resize(in.Count(kMaxParts, 108));
  for (PartSignature& p : record.parts) p = PartSignature::Decode(in);
  if (in.Bool()) {
    record.owner.emplace();
    const ByteView raw = in.Raw(record.owner->bytes.size());
    std::copy(raw.begin(), raw.end(), record.owner->bytes.begin());
  }
  LOOM_RETURN_IF_ERROR(in.Finish("record"));
  return record;
}

Bytes Genesis::Encode() const {
  Writer out;
  out.Var(spec);
  out.Id(nonce);
  out.Count(owners.size());
  for (const auto& key : owners) PutKey(out, key);
  PutRef(out, tokenizer);
  for (const auto* shards : {&train_shards, &val_shards}) {
    out.Count(shards->size());
    for (const ObjectRef& ref : *shards) PutRef(out, ref);
  }
  out.Var(dataset);
  out.Id(probe);
  out.Int(static_cast<std::uint64_t>(created));
  out.Text(name);
  if (!start.empty()) {
    out.Count(start.size());
    for (const NamedObject& file : start) {
      out.Text(file.name);
      PutRef(out, file.ref);
    }
  }
  return std::move(out).Take();
}

Result<Genesis> Genesis::Decode(ByteView bytes) {
  Reader in(bytes);
  Genesis genesis;
  genesis.spec = ToBytes(in.Var(1U << 20));
  genesis.nonce = in.GetId<HashTag>();
  genesis.owners.resize(in.Count(16, 32));
  for (auto& key : genesis.owners) key = GetKey(in);
  genesis.tokenizer = GetRef(in);
  genesis.train_shards = GetRefs(in);
  genesis.val_shards = GetRefs(in);
  genesis.dataset = ToBytes(in.Var(1U << 20));
  genesis.probe = in.GetId<HashTag>();
  genesis.created = static_cast<std::int64_t>(in.Int<std::uint64_t>());
  genesis.name = in.Text(64);
  if (in.ok() && in.left() > 0) {
    genesis.start.resize(in.Count(kMaxStartFiles, 44));
    if (genesis.start.empty()) in.Fail("start");  // is then not written
    for (NamedObject& file : genesis.start) {
      file.name = in.Text(kMaxStartName);
      file.ref = GetRef(in);
    }
  }
  LOOM_RETURN_IF_ERROR(in.Finish("genesis"));
  return genesis;
}

bool Reverts(const Body& body) { return body.order && body.order->revert; }

std::vector<Round> Ancestry(Round round, const std::function<const Body&(Round)>& at) {
  std::vector<Round> rounds{round};
  while (round > 0) {
    const Body& body = at(round);
    round = Reverts(body) ? *body.order->revert : round - 1;
    rounds.push_back(round);
  }
  return rounds;
}

Head HeadOf(const Record& record) {
  return {record.body.era, record.body.round, record.hash, record.body.root};
}

}  // namespace loom::collab
