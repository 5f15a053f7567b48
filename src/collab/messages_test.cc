// Every message, filled with random contents: it survives the wire, and damaged bytes are refused
// without a crash (R1, R38). Seeds are printed with what fails.
#include "collab/messages.h"

#include <gtest/gtest.h>

#include <random>

#include "collab/chain.h"
#include "crypto/hash.h"

namespace loom::collab {
namespace {

/// Fills whatever Io() names; lists get up to three items.
class Fill {
 public:
  explicit Fill(std::uint64_t seed) : random_(seed) {}

  template <class... T>
  void operator()(T&... fields) {
    (Field(fields), ...);
  }
  void Var(Bytes& bytes, std::size_t) {
    bytes.resize(random_() % 40);
    for (std::byte& b : bytes) b = static_cast<std::byte>(random_());
  }
  void Var(Slice& slice, std::size_t max) {
    Bytes bytes;
    Var(bytes, max);
    slice = WholeOf(MakeBlob(std::move(bytes)));
  }
  void Text(std::string& text, std::size_t) {
    text.resize(random_() % 20);
    for (char& c : text) c = static_cast<char>('a' + random_() % 26);
  }
  template <class T, class F>
  void List(std::vector<T>& items, std::size_t, std::size_t, F&& each) {
    items.resize(1 + random_() % 3);
    for (T& item : items) each(item);
  }

 private:
  void Field(DecisionId& id) { (*this)(id.era, id.round, id.parent); }
  void Field(Head& head) { (*this)(head.era, head.round, head.hash, head.root); }
  void Field(Vote& v) { (*this)(v.peer, v.term, v.body, v.seq, v.signature); }
  void Field(Order& o) {
    o.number = random_();
    if (random_() % 2 == 0) o.revert = random_();
    Var(o.settings, 0);
    (*this)(o.owner, o.signature);
  }
  void Field(Seal& s) { (*this)(s.era, s.end, s.owner, s.signature); }
  void Field(Promise& p) {
    (*this)(p.peer, p.term, p.seq, p.signature);
    if (random_() % 2 == 0) return;
    p.last.emplace();
    Bytes body;
    Var(body, 0);
    Field(p.last->vote);
    p.last->body = MakeBlob(std::move(body));
  }
  void Field(Word& w) {
    DecisionId id;
    Field(id);
    if (random_() % 2 == 0) {
      Vote vote;
      Field(vote);
      w = Word::Of(id, vote);
    } else {
      Promise promise;
      Field(promise);
      w = Word::Of(id, promise);
    }
  }
  template <class T>
  void Field(T& field) {
    if constexpr (std::is_same_v<T, bool>) {
      field = random_() % 2 == 1;
    } else if constexpr (std::is_floating_point_v<T>) {
      field = static_cast<T>(random_() % 100000) / 7;
    } else if constexpr (std::is_same_v<T, agreed::Exponent>) {
      field = static_cast<T>(
          static_cast<int>(random_() % (agreed::kMaxExponent - agreed::kNoExponent + 1)) +
          agreed::kNoExponent);
    } else if constexpr (std::is_unsigned_v<T>) {
      field = static_cast<T>(random_());
    } else {
      for (std::byte& b : field.bytes) b = static_cast<std::byte>(random_());
    }
  }

  std::mt19937_64 random_;
};

Hash HashOf(std::uint64_t seed) {
  Hash hash;
  Fill fill(seed);
  fill(hash);
  return hash;
}

template <std::size_t I>
Message MakeAs(std::uint64_t seed) {
  using T = std::variant_alternative_t<I, Message>;
  T message;
  Fill fill(seed);
  if constexpr (std::is_same_v<T, swarm::ObjectData>) {
    Bytes bytes;
    fill.Var(bytes, 0);
    message.id = HashOf(seed);
    message.bytes = MakeBlob(std::move(bytes));
  } else if constexpr (std::is_same_v<T, swarm::GetObjects> || std::is_same_v<T, swarm::NotHere>) {
    for (std::uint64_t k = 0; k <= seed % 3; ++k) message.ids.push_back(HashOf(seed + k));
  } else {
    message.Io(fill);
  }
  return message;
}

/// One of each kind.
std::vector<Message> OneOfEach(std::uint64_t seed) {
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::vector<Message>{MakeAs<I>(seed * 100 + I)...};
  }(std::make_index_sequence<std::variant_size_v<Message>>{});
}

Result<Message> Decode(std::uint16_t type, ByteView bytes) {
  return DecodeMessage(type, MakeBlob(ToBytes(bytes)));
}

TEST(MessagesTest, EveryMessageSurvivesTheWire) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const Message& message : OneOfEach(seed)) {
      const Bytes bytes = EncodeMessage(message);
      const auto back = Decode(TypeOf(message), bytes);
      ASSERT_TRUE(back.ok()) << MessageName(message) << " seed " << seed << ": "
                             << back.error().ToString();
      EXPECT_EQ(back->index(), message.index());
      EXPECT_EQ(EncodeMessage(*back), bytes) << MessageName(message) << " seed " << seed;
    }
  }
}

TEST(MessagesTest, TilesAreViewsOfWhatCame) {
  Part part;
  part.tiles = WholeOf(MakeBlob(ToBytes(AsBytes("bytes of three tiles"))));
  const Blob frame = MakeBlob(EncodeMessage(part));
  const auto back = DecodeMessage(TypeOf(Message(part)), frame);
  ASSERT_TRUE(back.ok());
  const Slice& tiles = std::get<Part>(*back).tiles;
  EXPECT_EQ(tiles.blob, frame);
  EXPECT_EQ(AsText(tiles.View()), "bytes of three tiles");
}

TEST(MessagesTest, AMessageCutAtAnyByteIsRefused) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const Message& message : OneOfEach(seed)) {
      const Bytes bytes = EncodeMessage(message);
      for (std::size_t n = 0; n < bytes.size(); ++n) {
        EXPECT_FALSE(Decode(TypeOf(message), ByteView(bytes).first(n)).ok())
            << MessageName(message) << " seed " << seed << " cut at " << n << " of "
            << bytes.size();
      }
    }
  }
}

TEST(MessagesTest, TrailingBytesAreRefused) {
  for (const Message& message : OneOfEach(1)) {
    Bytes bytes = EncodeMessage(message);
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(Decode(TypeOf(message), bytes).ok()) << MessageName(message);
  }
}

// A count of four billion in any place is refused before anything of that size is made; what is
// still accepted reads back as exactly these bytes.
TEST(MessagesTest, HugeCountsAnywhereAreRefusedOrPlainNumbers) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    for (const Message& message : OneOfEach(seed)) {
      const Bytes good = EncodeMessage(message);
      for (std::size_t at = 0; at + 4 <= good.size(); ++at) {
        Bytes bytes = good;
        std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), 4, std::byte{0xFF});
        const auto back = Decode(TypeOf(message), bytes);
        if (!back) continue;
        EXPECT_EQ(EncodeMessage(*back), bytes)
            << MessageName(message) << " seed " << seed << " at " << at;
      }
    }
  }
}

TEST(MessagesTest, CountsAboveTheirCapAreRefused) {
  Missing missing;
  missing.votes.resize(kMaxMembers);
  EXPECT_TRUE(Decode(TypeOf(missing), EncodeMessage(missing)).ok());
  missing.votes.resize(kMaxMembers + 1);
  EXPECT_FALSE(Decode(TypeOf(missing), EncodeMessage(missing)).ok());
  JoinRefused refused{std::string(1025, 'x')};
  EXPECT_FALSE(Decode(TypeOf(refused), EncodeMessage(refused)).ok());
  swarm::GetObjects get;
  get.ids.resize(swarm::kMaxIdsPerMessage + 1);
  EXPECT_FALSE(Decode(TypeOf(get), EncodeMessage(get)).ok());
}

TEST(MessagesTest, UnknownTypesAreRefused) {
  for (const std::size_t type :
       {std::size_t{0}, std::size_t{kFirstMessageType - 1},
        kFirstMessageType + std::variant_size_v<Message>, std::size_t{65535}}) {
    EXPECT_FALSE(Decode(static_cast<std::uint16_t>(type), {}).ok()) << type;
  }
}

// R18: the id of a commitment covers everything but its signature.
TEST(MessagesTest, R18ACommitmentsIdCoversEveryField) {
  const auto base = std::get<Commitment>(MakeAs<4>(7));
  const auto changed = [&](auto&& change) {
    Commitment c = base;
    change(c);
    return c.Id() != base.Id();
  };
  EXPECT_TRUE(changed([](Commitment& c) { ++c.id.era; }));
  EXPECT_TRUE(changed([](Commitment& c) { ++c.id.round; }));
  EXPECT_TRUE(changed([](Commitment& c) { c.id.parent = HashOf(1); }));
  EXPECT_TRUE(changed([](Commitment& c) { ++c.shares[0].worker; }));
  EXPECT_TRUE(changed([](Commitment& c) { c.peer.bytes[0] ^= std::byte{1}; }));
  EXPECT_TRUE(changed([](Commitment& c) { ++c.shares[0].samples; }));
  EXPECT_TRUE(changed([](Commitment& c) { ++c.shares[0].tokens; }));
  EXPECT_TRUE(changed([](Commitment& c) { ++c.millis; }));
  EXPECT_TRUE(changed([](Commitment& c) { c.loss_sum += 1; }));
  EXPECT_TRUE(changed([](Commitment& c) { c.grad_norm += 1; }));
  EXPECT_TRUE(changed([](Commitment& c) { c.shares.push_back({}); }));
  EXPECT_TRUE(changed([](Commitment& c) { c.bounds = HashOf(4); }));
  EXPECT_TRUE(changed([](Commitment& c) { c.exponents[0] ^= 1; }));
  EXPECT_TRUE(changed([](Commitment& c) { ++c.not_finite[0]; }));
  EXPECT_TRUE(changed([](Commitment& c) { c.tiles[0] = HashOf(2); }));
  EXPECT_TRUE(changed([](Commitment& c) { c.tiles.push_back(HashOf(3)); }));
  EXPECT_FALSE(changed([](Commitment& c) { c.signature.bytes[5] ^= std::byte{1}; }));
}

// R20, R35: what an owner or a relayed member signs covers its bytes and whom they are for.
TEST(MessagesTest, R20R35TheSignedTextsCoverWhatIsCarried) {
  const auto reduced = std::get<Reduced>(MakeAs<9>(3));
  const PartSignature part{{}, reduced.term, reduced.attempt, reduced.run, {}};
  const std::vector<Hash> tiles{HashOf(1), HashOf(2)};
  const std::vector<Hash> others{HashOf(1), HashOf(3)};
  PartSignature later = part;
  ++later.attempt;
  EXPECT_NE(PartText(reduced.id, part, tiles), PartText(reduced.id, part, others));
  EXPECT_NE(PartText(reduced.id, part, tiles), PartText(reduced.id, later, tiles));
  auto relay = std::get<Relay>(MakeAs<24>(3));
  const Bytes text = relay.Text();
  relay.payload.push_back(std::byte{1});
  EXPECT_NE(relay.Text(), text);
  relay.payload.pop_back();
  EXPECT_EQ(relay.Text(), text);
  relay.to = PeerId{};
  EXPECT_NE(relay.Text(), text);
}

}  // namespace
}  // namespace loom::collab
