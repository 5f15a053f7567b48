#include "node/outbox.h"

#include <gtest/gtest.h>

namespace loom::node {
namespace {

template <class Kind = PeerId>
Kind Id(int i) {
  Kind id;
  id.bytes[0] = static_cast<std::byte>(i);
  return id;
}

/// A link that takes a few messages and then waits.
struct Link {
  std::size_t room = 0;
  std::vector<std::pair<PeerId, collab::Message>> taken;
  Outbox outbox{[this](const PeerId& to, std::uint16_t type, const Blob& encoded) {
    if (room == 0) return false;
    --room;
    auto message = collab::DecodeMessage(type, encoded);
    if (!message) return false;
    taken.emplace_back(to, std::move(*message));
    return true;
  }};
  /// First tiles of the parts sent so far.
  std::vector<std::uint32_t> Parts() const {
    std::vector<std::uint32_t> out;
    for (const auto& [to, message] : taken) {
      if (const auto* part = std::get_if<collab::Part>(&message)) out.push_back(part->run.first);
    }
    return out;
  }
};

collab::Part PartOf(Round round, std::uint32_t first, const Blob& whole) {
  collab::Part part;
  part.id.round = round;
  part.commitment = Id<Hash>(9);
  part.run = {first, 1};
  part.tiles = {whole, first, 1};
  return part;
}

swarm::ObjectData Object(int i, std::size_t size) { return {Id<Hash>(i), MakeBlob(Bytes(size))}; }

TEST(Outbox, WhatIsLargerThanTheLinksQueueArrivesInOrderAsTheQueueEmpties) {
  Link link;
  link.room = 3;
  const Blob whole = MakeBlob(Bytes(100, std::byte{7}));
  for (std::uint32_t i = 0; i < 100; ++i) EXPECT_TRUE(link.outbox.Push(Id(1), PartOf(4, i, whole)));
  EXPECT_EQ(link.taken.size(), 3U);
  EXPECT_TRUE(link.outbox.Waits(Id(1)));
  // All that waits are views of the same bytes; one of them is encoded.
  EXPECT_EQ(whole.use_count(), 1 + 97);
  while (link.outbox.Waits(Id(1))) {
    link.room = 10;
    link.outbox.OnSpace(Id(1));
  }
  std::vector<std::uint32_t> all(100);
  for (std::uint32_t i = 0; i < 100; ++i) all[i] = i;
  EXPECT_EQ(link.Parts(), all);
  EXPECT_EQ(whole.use_count(), 1);
}

TEST(Outbox, APieceThatWaitsIsNotQueuedAgain) {
  Link link;
  const Blob whole = MakeBlob(Bytes(4));
  for (int attempt = 0; attempt < 3; ++attempt) {
    for (std::uint32_t i = 0; i < 4; ++i) link.outbox.Push(Id(1), PartOf(4, i, whole));
  }
  link.outbox.Push(Id(2), PartOf(4, 0, whole));
  link.room = 100;
  link.outbox.OnSpace(Id(1));
  EXPECT_EQ(link.taken.size(), 4U);
  EXPECT_TRUE(link.outbox.Waits(Id(2)));
}

TEST(Outbox, WithTheDecisionItsPartsAndOlderResultsAreDropped) {
  Link link;
  const Blob whole = MakeBlob(Bytes(4));
  link.outbox.Push(Id(1), PartOf(4, 0, whole));
  link.outbox.Push(Id(1), PartOf(5, 1, whole));
  for (const Round round : {Round{3}, Round{4}}) {
    collab::Reduced reduced;
    reduced.id.round = round;
    reduced.run = {0, 1};
    link.outbox.Push(Id(1), reduced);
  }
  link.outbox.Push(Id(2), PartOf(4, 0, whole));
  link.outbox.DropBefore(4);
  EXPECT_FALSE(link.outbox.Waits(Id(2)));
  link.room = 100;
  link.outbox.OnSpace(Id(1));
  EXPECT_EQ(link.Parts(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(link.taken.size(), 2U);
}

TEST(Outbox, ObjectsForOnePeerAreBounded) {
  Link link;
  std::size_t taken = 0;
  while (taken < 1000 && link.outbox.Push(Id(1), Object(1, 64U << 20))) ++taken;
  EXPECT_EQ(taken, 4U);
  EXPECT_TRUE(link.outbox.Push(Id(2), Object(1, 64U << 20)));
  link.outbox.Forget(Id(1));
  EXPECT_FALSE(link.outbox.Waits(Id(1)));
  EXPECT_TRUE(link.outbox.Push(Id(1), Object(1, 64U << 20)));
}

}  // namespace
}  // namespace loom::node
