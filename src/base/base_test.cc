#include <gtest/gtest.h>

#include "base/human.h"
#include "base/id.h"
#include "base/memory.h"
#include "base/printable.h"
#include "base/queue.h"
#include "base/result.h"
#include "base/stream.h"
#include "base/time.h"

namespace loom {
namespace {

Result<int> Half(int n) {
  if (n % 2 != 0)
    return MakeError(Code::kInvalid, fmt::format("{} is odd", n), "use an even number");
  return n / 2;
}

Result<int> Quarter(int n) {
  LOOM_ASSIGN(const int half, Half(n));
  return Half(half);
}

TEST(Human, NumbersAndWordsOfAShell) {
  EXPECT_EQ(HumanSeconds(4459), "1 h 14 min");
  EXPECT_EQ(Counted(1, "peer"), "1 peer");
  EXPECT_EQ(Counted(1200, "peer"), "1,200 peers");
  EXPECT_EQ(Counted(1, "address", "addresses"), "1 address");
  EXPECT_EQ(Counted(2, "address", "addresses"), "2 addresses");
  EXPECT_EQ(ShellWord("runs/a-b_1.toml"), "runs/a-b_1.toml");
  EXPECT_EQ(ShellWord("my run"), "'my run'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord(""), "''");
}

TEST(Result, CarriesTheFirstErrorOutward) {
  EXPECT_EQ(*Quarter(12), 3);
  const auto failed = Quarter(6);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().ToString(), "3 is odd (hint: use an even number)");
  EXPECT_EQ(std::move(Error(failed.error())).Context("data").message, "data: 3 is odd");
}

TEST(Id, HexRoundTripAndRefusal) {
  PeerId id;
  id.bytes[0] = std::byte{0xab};
  EXPECT_EQ(*PeerId::FromHex(id.Hex()), id);
  EXPECT_EQ(id.Short(), "ab000000");
  EXPECT_FALSE(PeerId::FromHex("ab"));
  EXPECT_FALSE(PeerId::FromHex(std::string(64, 'g')));
}

TEST(Queue, RefusesWhenFullAndDrainsAfterClose) {
  BoundedQueue<int> queue(2);
  EXPECT_TRUE(queue.TryPush(1));
  EXPECT_TRUE(queue.TryPush(2));
  EXPECT_FALSE(queue.TryPush(3));
  queue.Close();
  EXPECT_EQ(queue.Pop(), 1);
  EXPECT_EQ(queue.Pop(), 2);
  EXPECT_EQ(queue.Pop(), std::nullopt);
}

TEST(Time, BootClockMovesForward) {
  const Time a = SystemClock().Now();
  EXPECT_LE(a, SystemClock().Now());
  EXPECT_EQ(FromSeconds(1.5), 1500ms);
}

TEST(Printable, AStrangersTextIsOneLine) {
  EXPECT_EQ(OneLine("caf\xC3\xA9 \xE2\x82\xAC"), "caf\xC3\xA9 \xE2\x82\xAC");
  EXPECT_EQ(OneLine("a\nb\x1B[31m\x7F"), "a?b?[31m?");
  EXPECT_EQ(OneLine("\xC2\x9B"), "?");  // the C1 form of ESC [
  EXPECT_EQ(OneLine("a\xFF\xC3"), "a??");
  EXPECT_EQ(OneLine("abc\xC3\xA9", 4), "abc");
}

TEST(Printable, AnErrorIsFitForATerminal) {
  const Error error = MakeError(Code::kInvalid, "key '\x1B[2J\xFF\xC3\xA9'\nnext line", "a\rb");
  EXPECT_EQ(error.ToString(), "key '?[2J?\xC3\xA9'\nnext line (hint: a?b)");
}

TEST(Memory, WhatIsAvailableIsReadFromTheKernelsWords) {
  EXPECT_EQ(AvailableOf("MemTotal:       24683520 kB\nMemFree:         1000 kB\n"
                        "MemAvailable:   20480 kB\nSwapTotal: 8 kB\nSwapFree:  4 kB\n"),
            (20480U + 4) * 1024);
  EXPECT_EQ(AvailableOf("MemAvailable: 7 kB\n"), 7U * 1024);
  EXPECT_EQ(AvailableOf("MemTotal: 7 kB\n"), UINT64_MAX);
  EXPECT_GT(AvailableMemory(), 0U);
}

TEST(Memory, TheErrorNamesTheThingWhatItNeedsAndWhatThereIs) {
  EXPECT_EQ(NoMemory("the gradients", 2'000'000'000, 512'000'000).message,
            "no memory for the gradients: 2.0 GB needed, 512 MB available");
  EXPECT_EQ(NoMemory("the gradients", 12'300, UINT64_MAX).message,
            "no memory for the gradients: 12 kB needed");
  EXPECT_NE(NoMemory("x", 1, 0).hint, "");
}

TEST(Stream, GivesWhatItWasMadeOfAndNoMore) {
  const Bytes bytes = ToBytes(AsBytes("abcdef"));
  BytesSink sink;
  ASSERT_TRUE(sink.Write(ByteView(bytes).first(2)));
  ASSERT_TRUE(sink.Write(ByteView(bytes).subspan(2)));
  EXPECT_EQ(sink.bytes(), bytes);
  ViewSource source(bytes);
  Bytes part(4);
  ASSERT_TRUE(source.Read(part));
  EXPECT_EQ(AsText(part), "abcd");
  EXPECT_EQ(source.left(), 2U);
  EXPECT_EQ(source.Read(part).error().message, "4 bytes are wanted, 2 are left");
}

}  // namespace
}  // namespace loom
