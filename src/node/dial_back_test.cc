// Who is dialled back and who is not, and what a round of questions tells.
#include "node/dial_back.h"

#include <gtest/gtest.h>

#include "node/checkup.h"
#include "node/node_messages.h"

namespace loom::node {
namespace {

using namespace std::chrono_literals;

PeerId Id(int i) {
  PeerId id;
  id.bytes[0] = static_cast<std::byte>(i);
  return id;
}

swarm::Address At(const std::string& text) { return *swarm::ParseAddress(text); }

Neighbour From(const std::string& remote, const std::vector<std::string>& announced) {
  Neighbour neighbour;
  neighbour.remote = At(remote);
  neighbour.features = kAnswersDialBack;
  for (const std::string& address : announced) neighbour.announced.push_back(At(address));
  return neighbour;
}

constexpr Time kBegin{10s};

TEST(DialBackDesk, OnlyWhatTheAskerAnnouncedAndWhatCanBeMeantForIt) {
  const Neighbour far = From("203.0.113.7:50000", {"203.0.113.7:4711", "192.168.1.10:4711",
                                                   "attic.example:4711", "nas.local:4711"});
  const Neighbour near = From("192.168.1.10:50000", {"192.168.1.10:4711", "127.0.0.1:4711"});
  const Neighbour here = From("127.0.0.1:50000", {"127.0.0.1:4711", "192.168.1.10:4711"});
  const auto allowed = [](const Neighbour& from, const std::string& address) {
    DialBackDesk desk;
    const auto refusal = desk.Refusal(Id(1), from, At(address), kBegin);
    EXPECT_TRUE(!refusal || refusal->find(address) != std::string::npos) << *refusal;
    return !refusal;
  };
  EXPECT_TRUE(allowed(far, "203.0.113.7:4711"));
  EXPECT_TRUE(allowed(far, "attic.example:4711"));
  EXPECT_FALSE(allowed(far, "203.0.113.7:22")) << "another port was not announced";
  EXPECT_FALSE(allowed(far, "192.168.1.10:4711")) << "an address in our own network";
  EXPECT_FALSE(allowed(far, "nas.local:4711"));
  EXPECT_TRUE(allowed(near, "192.168.1.10:4711"));
  EXPECT_FALSE(allowed(near, "127.0.0.1:4711"));
  EXPECT_TRUE(allowed(here, "127.0.0.1:4711"));
  EXPECT_TRUE(allowed(here, "192.168.1.10:4711"));
}

TEST(DialBackDesk, WhatANameStandsForIsJudgedByTheSameRule) {
  EXPECT_TRUE(MeantFor(At("203.0.113.7:1"), "198.51.100.4"));
  EXPECT_TRUE(MeantFor(std::nullopt, "2a00:1450::1"));
  for (const char* ip : {"10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "fd00::1",
                         "127.0.0.1", "::1", "169.254.1.1", "fe80::1", "0.0.0.0"}) {
    EXPECT_FALSE(MeantFor(At("203.0.113.7:1"), ip)) << ip;
  }
}

TEST(DialBackDesk, NobodyScansThroughIt) {
  std::vector<std::string> many;
  for (int port = 1; port <= 60; ++port) many.push_back(fmt::format("203.0.113.7:{}", port));
  const Neighbour scanner = From("203.0.113.9:50000", many);
  DialBackDesk desk;
  // At most so many at once.
  for (std::size_t i = 0; i < DialBackDesk::kAtOnce; ++i)
    EXPECT_FALSE(desk.Refusal(Id(1), scanner, At(many[i]), kBegin));
  EXPECT_NE(desk.Refusal(Id(1), scanner, At(many[10]), kBegin)->find("busy"), std::string::npos);
  for (std::size_t i = 0; i < DialBackDesk::kAtOnce; ++i) desk.Done();
  // And so many an hour, by whichever addresses.
  std::size_t served = DialBackDesk::kAtOnce;
  std::string last;
  for (std::size_t i = served; i < many.size(); ++i) {
    const auto refusal = desk.Refusal(Id(1), scanner, At(many[i]), kBegin + 20s);
    if (refusal) {
      last = *refusal;
    } else {
      desk.Done();
      ++served;
    }
  }
  EXPECT_EQ(served, DialBackDesk::kPerHour);
  EXPECT_NE(last.find("40 addresses"), std::string::npos) << last;
  EXPECT_FALSE(desk.Refusal(Id(2), scanner, At(many[50]), kBegin + 20s)) << "another asker";
  EXPECT_FALSE(desk.Refusal(Id(1), scanner, At(many[50]), kBegin + 61min));
}

TEST(DialBackDesk, RemembersABoundedNumberOfAskers) {
  const Neighbour from = From("203.0.113.7:50000", {"203.0.113.7:4711"});
  DialBackDesk desk;
  std::size_t served = 0;
  for (int i = 0; i < 2000; ++i) {
    PeerId id;
    id.bytes[0] = static_cast<std::byte>(i & 255);
    id.bytes[1] = static_cast<std::byte>(i >> 8);
    if (desk.Refusal(id, from, At("203.0.113.7:4711"), kBegin)) continue;
    desk.Done();
    ++served;
  }
  EXPECT_EQ(served, DialBackDesk::kMaxAskers);
}

TEST(Checkup, AsksThoseWhoCanAnswerFromDifferentPlacesFirst) {
  std::map<PeerId, Neighbour> neighbours;
  neighbours[Id(1)] = From("203.0.113.1:1", {});
  neighbours[Id(2)] = From("203.0.113.1:2", {});
  neighbours[Id(3)] = From("203.0.113.2:1", {});
  neighbours[Id(4)] = From("203.0.113.3:1", {});
  neighbours[Id(5)] = From("203.0.113.4:1", {});
  neighbours[Id(3)].features = 0;
  const Checkup checkup(neighbours, {}, kBegin, {});
  EXPECT_EQ(checkup.asked(), (std::vector<PeerId>{Id(1), Id(4), Id(5)}));
}

TEST(Checkup, TellsWhatEachSaidAndWhatIsMissing) {
  std::map<PeerId, Neighbour> neighbours;
  neighbours[Id(1)] = From("203.0.113.1:1", {});
  neighbours[Id(2)] = From("203.0.113.2:1", {});
  neighbours[Id(1)].version = "loom 9";
  const std::vector<swarm::Address> own{At("a.example:4711"), At("192.168.1.10:4711")};
  Checkup checkup(neighbours, own, kBegin, {});
  EXPECT_FALSE(checkup.Over(kBegin));
  checkup.OnView(Id(1), {1030, "198.51.100.9:40000"}, 1000);
  checkup.OnDialedBack(Id(1), {own[0], DialedBack::Outcome::kFailed, net::DialStep::kConnect,
                               Code::kTimeout, "no answer"});
  checkup.OnDialedBack(Id(1), {own[1], DialedBack::Outcome::kNotTried, {}, {}, "not meant for me"});
  checkup.OnDialedBack(Id(2), {own[0], DialedBack::Outcome::kReached, {}, {}, ""});
  checkup.OnDialedBack(Id(2), {At("other.example:1"), DialedBack::Outcome::kReached, {}, {}, ""});
  checkup.OnDialedBack(Id(9), {own[0], DialedBack::Outcome::kReached, {}, {}, ""});
  EXPECT_FALSE(checkup.Over(kBegin)) << "one has not said everything";
  EXPECT_TRUE(checkup.Over(kBegin + Checkup::kLimit));
  const auto expected = json::Parse(fmt::format(
      R"([{{"peer":"{}","version":"loom 9","seen_as":"198.51.100.9:40000","clock_offset_s":30.0,)"
      R"("dialled":[{{"address":"a.example:4711","result":"failed","step":"connect",)"
      R"("code":"timeout","failure":"connect timed out","error":"no answer"}},)"
      R"({{"address":"192.168.1.10:4711","result":"not_tried","error":"not meant for me"}}]}},)"
      R"({{"peer":"{}","version":"","dialled":[{{"address":"a.example:4711","result":"reached"}},)"
      R"({{"address":"192.168.1.10:4711","result":"no_answer"}}]}}])",
      Id(1).Hex(), Id(2).Hex()));
  ASSERT_TRUE(expected.ok());
  EXPECT_EQ(json::Dump(json::Value(checkup.Json())), json::Dump(*expected));
  checkup.OnView(Id(2), {1000, ""}, 1000);
  checkup.OnDialedBack(Id(2), {own[1], DialedBack::Outcome::kNotTried, {}, {}, ""});
  EXPECT_TRUE(checkup.Over(kBegin));
}

TEST(NodeMessages, DialBacksRoundTripAndAreBounded) {
  const auto again = [](const NodeMessage& message) {
    auto back = DecodeNodeMessage(TypeOf(message), EncodeNodeMessage(message));
    EXPECT_TRUE(back.ok());
    return *std::move(back);
  };
  EXPECT_TRUE(std::holds_alternative<GetView>(again(GetView{})));
  const View view = std::get<View>(again(View{1234567890, "[2001:db8::1]:4711"}));
  EXPECT_EQ(view.now, 1234567890);
  EXPECT_EQ(view.address, "[2001:db8::1]:4711");
  EXPECT_EQ(std::get<DialBack>(again(DialBack{At("a.example:1")})).address, At("a.example:1"));
  const DialedBack back =
      std::get<DialedBack>(again(DialedBack{At("a.example:1"), DialedBack::Outcome::kFailed,
                                            net::DialStep::kPin, Code::kConflict, "another\nkey"}));
  EXPECT_EQ(back.step, net::DialStep::kPin);
  EXPECT_EQ(back.code, Code::kConflict);
  EXPECT_EQ(back.text, "another?key");

  const std::uint16_t dialed = TypeOf(NodeMessage(DialedBack{}));
  Bytes bytes = EncodeNodeMessage(back);
  bytes[4 + std::string("a.example:1").size()] = std::byte{3};  // an outcome that there is not
  EXPECT_FALSE(DecodeNodeMessage(dialed, bytes).ok());
  wire::Writer odd;
  odd.Text("no address");
  EXPECT_FALSE(DecodeNodeMessage(TypeOf(NodeMessage(DialBack{})), std::move(odd).Take()).ok());
}

}  // namespace
}  // namespace loom::node
