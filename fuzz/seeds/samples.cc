#include "fuzz/seeds/samples.h"

#include <optional>
#include <utility>

#include "crypto/hash.h"
#include "swarm/invite.h"
#include "train/spec.h"

namespace loom::fuzz {
namespace {

using collab::Message;

/// Fills whatever Io() names; every list gets two items.
class Fill {
 public:
  template <class... T>
  void operator()(T&... fields) {
    (Field(fields), ...);
  }
  void Var(Bytes& bytes, std::size_t) { bytes = ToBytes(AsBytes("bytes of it")); }
  void Var(Slice& slice, std::size_t) {
    slice = WholeOf(MakeBlob(ToBytes(AsBytes("bytes of it"))));
  }
  void Text(std::string& text, std::size_t) { text = "why"; }
  template <class T, class F>
  void List(std::vector<T>& items, std::size_t, std::size_t, F&& each) {
    items.resize(2);
    for (T& item : items) each(item);
  }

 private:
  void Field(collab::DecisionId& id) { (*this)(id.era, id.round, id.parent); }
  void Field(collab::Head& head) { (*this)(head.era, head.round, head.hash, head.root); }
  void Field(collab::Vote& v) { (*this)(v.peer, v.term, v.body, v.seq, v.signature); }
  void Field(collab::Order& o) {
    (*this)(o.number, o.owner, o.signature);
    o.settings = ToBytes(AsBytes(SampleSpec()));
    o.revert = 3;
  }
  void Field(collab::Seal& s) { (*this)(s.era, s.end, s.owner, s.signature); }
  void Field(collab::Promise& p) {
    (*this)(p.peer, p.term, p.seq, p.signature);
    p.last.emplace();
    Field(p.last->vote);
    p.last->body = MakeBlob(SampleBody().Encode());
  }
  void Field(collab::Word& word) {
    collab::DecisionId id;
    Field(id);
    collab::Promise promise;
    Field(promise);
    word = collab::Word::Of(id, promise);
  }
  template <class T>
  void Field(T& field) {
    const std::uint8_t next = ++count_;
    if constexpr (std::is_same_v<T, bool>) {
      field = next % 2 == 1;
    } else if constexpr (std::is_floating_point_v<T>) {
      field = static_cast<T>(next) / 4;
    } else if constexpr (std::is_same_v<T, agreed::Exponent>) {
      field = static_cast<T>(next % 100);
    } else if constexpr (std::is_unsigned_v<T>) {
      field = static_cast<T>(next % 8);
    } else {
      field.bytes[0] = static_cast<std::byte>(next);
    }
  }

  std::uint8_t count_ = 0;
};

template <std::size_t I>
Message SampleOf() {
  using T = std::variant_alternative_t<I, Message>;
  T message;
  if constexpr (std::is_same_v<T, swarm::ObjectData>) {
    const Bytes bytes = ToBytes(AsBytes("the bytes of an object"));
    message = {crypto::Sha256(bytes), MakeBlob(bytes)};
  } else if constexpr (std::is_same_v<T, swarm::GetObjects> || std::is_same_v<T, swarm::NotHere>) {
    message.ids = {SampleHash(1), SampleHash(2)};
  } else {
    Fill fill;
    message.Io(fill);
  }
  return message;
}

}  // namespace

crypto::SigningKey SampleKey(std::uint8_t number) {
  crypto::Seed seed;
  seed.bytes[0] = static_cast<std::byte>(number);
  return crypto::SigningKey::FromSeed(seed);
}

Hash SampleHash(std::uint8_t number) {
  const std::byte one[] = {static_cast<std::byte>(number)};
  return crypto::Sha256(one);
}

std::string SampleSpec() {
  train::RunFile run = train::DefaultRun();
  LOOM_CHECK(train::FitVocab(run.spec, 96).ok() && train::ResolveSpec(run.spec).ok());
  return train::CanonicalSpec(run.spec);
}

collab::Genesis SampleGenesis() {
  collab::Genesis genesis;
  genesis.spec = ToBytes(AsBytes(SampleSpec()));
  genesis.nonce = SampleHash(1);
  genesis.owners = {SampleKey(1).public_key(), SampleKey(2).public_key()};
  genesis.tokenizer = {SampleHash(2), 341};
  genesis.train_shards = {{SampleHash(3), 2'000'064}, {SampleHash(4), 500}};
  genesis.val_shards = {{SampleHash(5), 7000}};
  genesis.dataset = ToBytes(AsBytes("{}"));
  genesis.created = 1'700'000'000;
  genesis.name = "austen";
  return genesis;
}

collab::Body SampleBody() {
  collab::Body body;
  body.run.bytes = SampleHash(6).bytes;
  body.era = 1;
  body.round = 5;
  body.parent = SampleHash(7);
  for (std::uint8_t i = 1; i <= 2; ++i) {
    const crypto::PublicKey key = SampleKey(i).public_key();
    body.members.push_back({key, crypto::PeerIdOf(key), i, 1000});
    body.contributions.push_back(
        {i, crypto::PeerIdOf(key), 8, 128, 900, {{0, 3}, {8, 11}}, SampleHash(i)});
    body.fates.push_back({i, {4, 7}, collab::Fate::kReturned});
    body.workers.push_back({i, crypto::PeerIdOf(key), {{16, 31}}});
    body.tiles.push_back(SampleHash(i));
    body.exponents.push_back(static_cast<agreed::Exponent>(-i));
  }
  body.tokens = 256;
  body.steps = 5;
  body.next_sample = 32;
  body.returned = {{4, 7}};
  body.invite_uses = {{SampleHash(8), body.members[1].id}};
  body.bans = {crypto::PeerIdOf(SampleKey(3).public_key())};
  body.orders = 1;
  body.order.emplace();
  body.order->number = 1;
  body.order->settings = ToBytes(AsBytes(SampleSpec()));
  body.order->owner = SampleKey(1).public_key();
  body.root = SampleHash(9);
  return body;
}

collab::Record SampleRecord() {
  auto record = collab::Record::FromBody(MakeBlob(SampleBody().Encode())).value();
  for (std::uint8_t i = 1; i <= 2; ++i) {
    record.votes.push_back({record.body.members[i - 1U].id, 2, record.hash, i, {}});
    record.parts.push_back({record.body.members[i - 1U].id, 2, 1, {i - 1U, 1}, {}});
  }
  record.term = 2;
  record.owner.emplace();
  return record;
}

std::vector<Message> SampleMessages() {
  auto messages = []<std::size_t... I>(std::index_sequence<I...>) {
    return std::vector<Message>{SampleOf<I>()...};
  }(std::make_index_sequence<std::variant_size_v<Message>>{});
  for (Message& message : messages) {
    if (auto* record = std::get_if<collab::RecordMessage>(&message)) {
      record->record = SampleRecord().Encode();
    } else if (auto* proposal = std::get_if<collab::ProposalMessage>(&message)) {
      proposal->body = SampleBody().Encode();
    } else if (auto* relay = std::get_if<collab::Relay>(&message)) {
      relay->type = collab::TypeOf(collab::GetRecords{});
      relay->payload = collab::EncodeMessage(collab::GetRecords{});
    } else if (auto* ask = std::get_if<collab::JoinAsk>(&message)) {
      swarm::Invite invite;
      invite.addresses = {{{"node.example", 4001}, {}}};
      ask->invite = swarm::EncodeInvite(swarm::SignInvite(invite, SampleKey(1)).value());
    }
  }
  return messages;
}

}  // namespace loom::fuzz
