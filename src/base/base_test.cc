#include <gtest/gtest.h>

#include "base/id.h"
#include "base/printable.h"
#include "base/queue.h"
#include "base/result.h"
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

}  // namespace
}  // namespace loom
